// Rows of operands times a panel of weights, in registers.
#pragma once

#include <cstdint>

#include "recurrent/recurrent.h"
#include "recurrent/words.h"

namespace torchyard {
namespace {

template <class Format>
struct Product {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  using Operand = typename Format::Operand;
  static constexpr int kLanes = Isa::kLanes;
  // As many accumulators as the attention's micro-kernel has at most.
  static constexpr int kAccumulators = Isa::kTileRows * Isa::kTileVectors;
  // Each row has its address in a register.
  static constexpr int kMostRows = 8;
  // So many take all vectors of a panel at once: sums must be as many as multiplications are in
  // flight.
  static constexpr int kFewRows = kAccumulators / 4 < 4 ? kAccumulators / 4 : 4;
  static constexpr int kLine = 64;
  // How far ahead of a product its weight is asked for, in bytes.
  static constexpr int kAhead = 96 * kLine;

  // A panel's vectors lie in groups, one group after another, each for all words: two vectors, or
  // all three. With few vectors at a time there are many rows, for which a weight that is less than
  // 32 bits wide is widened but once.
  static constexpr int grouped(int vectors) { return vectors % 2 == 0 ? 2 : vectors; }

  template <int kVectors>
  static constexpr int most_rows() {
    constexpr int kRows = kAccumulators / grouped(kVectors);
    return kRows < kMostRows ? kRows : kMostRows;
  }

  // out(r, :) = init + sum over w < words of row(r, w) . weight(w, :), of kGroups groups side by
  // side. With init nullptr it is 0.
  template <int kGroup, int kGroups, int kRows>
  static TORCHYARD_NOINLINE void block(const Operand* rows, int64_t row_stride,
                                       const std::byte* groups, int64_t words, const float* init,
                                       float* out, int64_t out_stride) {
    constexpr int kVectors = kGroup * kGroups;
    constexpr int64_t kStep = kGroup * kLanes * Format::kLaneBytes;
    // A line of the weight is multiplied at each step, from a farther cache where they are many.
    constexpr bool kFetches = kStep == kLine && kGroups == 1;
    Vec sum[kRows][kVectors];
    const uint32_t* at[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      at[r] = reinterpret_cast<const uint32_t*>(rows + r * row_stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = init == nullptr ? Isa::zero() : Isa::load(init + v * kLanes);
      }
    }
    for (int64_t w = 0; w < words; ++w) {
      Vec column[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        column[v] = Format::weights(groups + v / kGroup * (words * kStep) +
                                    v % kGroup * (kLanes * Format::kLaneBytes));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec left = Isa::broadcast_word(at[r] + w);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[r][v] = Format::dot(sum[r][v], left, column[v]);
      }
      if constexpr (kFetches) __builtin_prefetch(groups + kAhead);
      groups += kStep;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) Isa::store(out + r * out_stride + v * kLanes, sum[r][v]);
    }
  }

  // The sums of `count` rows, 1 to kRows, with kGroups groups of one panel from vector `v` on.
  template <int kVectors, int kGroups, int kRows>
  static TORCHYARD_INLINE void some(int64_t count, int v, const Operand* rows, int64_t row_stride,
                                    const std::byte* panel, int64_t words, const float* init,
                                    float* out, int64_t out_stride) {
    if constexpr (kRows > 1) {
      if (count < kRows) {
        return some<kVectors, kGroups, kRows - 1>(count, v, rows, row_stride, panel, words, init,
                                                  out, out_stride);
      }
    }
    block<grouped(kVectors), kGroups, kRows>(
        rows, row_stride, panel + v * words * (kLanes * Format::kLaneBytes), words,
        init == nullptr ? nullptr : init + v * kLanes, out + v * kLanes, out_stride);
  }

  // The sums of `count` rows, 1 to most_rows(), with one panel.
  template <int kVectors>
  static TORCHYARD_INLINE void sums(int64_t count, const Operand* rows, int64_t row_stride,
                                    const std::byte* panel, int64_t words, const float* init,
                                    float* out, int64_t out_stride) {
    constexpr int kGroup = grouped(kVectors);
    if (count <= kFewRows) {
      some<kVectors, kVectors / kGroup, kFewRows>(count, 0, rows, row_stride, panel, words, init,
                                                  out, out_stride);
      return;
    }
    for (int v = 0; v < kVectors; v += kGroup) {
      some<kVectors, 1, most_rows<kVectors>()>(count, v, rows, row_stride, panel, words, init, out,
                                               out_stride);
    }
  }

  // The same of one row and two panels, to out and out + kVectors * kLanes. A panel alone has too
  // few sums to wait for none of them.
  template <int kVectors>
  static void two_panels(const Operand* row, const std::byte* panel, int64_t words,
                         const float* init, float* out) {
    constexpr int kGroup = grouped(kVectors);
    block<kGroup, 2 * kVectors / kGroup, 1>(row, 0, panel, words, init, out, 0);
  }

  // Rows per block for `count` rows: blocks of about one size, since each reads the whole panel.
  template <int kVectors>
  static int64_t block_rows(int64_t count) {
    constexpr int64_t kMost = most_rows<kVectors>();
    const int64_t blocks = (count + kMost - 1) / kMost;
    return blocks == 0 ? 1 : (count + blocks - 1) / blocks;
  }

  static int64_t panel_bytes(int64_t words, int64_t vectors) {
    return words * vectors * kLanes * Format::kLaneBytes;
  }

  template <int kVectors>
  static void all(const RecurrentProductJob& job) {
    constexpr int kGroup = grouped(kVectors);
    const Operand* rows = static_cast<const Operand*>(job.rows);
    const int64_t each = block_rows<kVectors>(job.row_count);
    for (int64_t p = job.first_panel; p < job.end_panel; ++p) {
      const std::byte* panel = job.panels + p * panel_bytes(job.words, kVectors);
      const int64_t column = p * kVectors * kLanes;
      if (job.row_count <= kFewRows) {
        sums<kVectors>(job.row_count, rows, job.row_stride, panel, job.words, job.bias + column,
                       job.out + column, job.out_stride);
        continue;
      }
      // A group is multiplied with all rows while the nearest cache has it.
      for (int v = 0; v < kVectors; v += kGroup) {
        for (int64_t r = 0; r < job.row_count; r += each) {
          some<kVectors, 1, most_rows<kVectors>()>(
              job.row_count - r < each ? job.row_count - r : each, v, rows + r * job.row_stride,
              job.row_stride, panel, job.words, job.bias + column,
              job.out + r * job.out_stride + column, job.out_stride);
        }
      }
    }
  }

  static void run(const RecurrentProductJob& job) {
    if (job.vectors == 3) {
      all<3>(job);
    } else {
      all<4>(job);
    }
  }
};

}  // namespace
}  // namespace torchyard

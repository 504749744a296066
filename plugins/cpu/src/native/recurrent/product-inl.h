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
  // As many accumulators as the attention's micro-kernel has.
  static constexpr int kAccumulators = Isa::kTileRows * Isa::kTileVectors;

  template <int kVectors>
  static constexpr int most_rows() {
    return kAccumulators / kVectors;
  }

  using Body = void (*)(const Operand*, int64_t, const std::byte*, int64_t, const float*, float*,
                        int64_t);

  // out(r, :) = init + sum over w < words of row(r, w) . panel(w, :). With init nullptr it is 0.
  template <int kVectors, int kRows>
  static TORCHYARD_NOINLINE void block(const Operand* rows, int64_t row_stride,
                                       const std::byte* panel, int64_t words, const float* init,
                                       float* out, int64_t out_stride) {
    Vec sum[kRows][kVectors];
    const uint32_t* at[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      at[r] = reinterpret_cast<const uint32_t*>(rows + r * row_stride);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = init == nullptr ? Isa::zero() : Isa::load(init + v * kLanes);
      }
    }
    for (int64_t w = 0; w < words; ++w) {
      Vec column[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        column[v] = Format::weights(panel + v * (kLanes * Format::kLaneBytes));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec left = Isa::broadcast_word(at[r] + w);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[r][v] = Format::dot(sum[r][v], left, column[v]);
      }
      panel += kVectors * kLanes * Format::kLaneBytes;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) Isa::store(out + r * out_stride + v * kLanes, sum[r][v]);
    }
  }

  // The same of one row and two panels, to out and out + kVectors * kLanes. A panel alone has too
  // few sums to wait for none of them.
  template <int kVectors>
  static TORCHYARD_NOINLINE void two_panels(const Operand* row, const std::byte* panel,
                                            int64_t words, const float* init, float* out) {
    constexpr int64_t kStep = kVectors * kLanes * Format::kLaneBytes;
    const std::byte* other = panel + words * kStep;
    const uint32_t* at = reinterpret_cast<const uint32_t*>(row);
    Vec sum[2][kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sum[0][v] = init == nullptr ? Isa::zero() : Isa::load(init + v * kLanes);
      sum[1][v] = init == nullptr ? Isa::zero() : Isa::load(init + (kVectors + v) * kLanes);
    }
    for (int64_t w = 0; w < words; ++w) {
      const Vec left = Isa::broadcast_word(at + w);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        constexpr int64_t kVector = kLanes * Format::kLaneBytes;
        sum[0][v] = Format::dot(sum[0][v], left, Format::weights(panel + v * kVector));
        sum[1][v] = Format::dot(sum[1][v], left, Format::weights(other + v * kVector));
      }
      panel += kStep;
      other += kStep;
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Isa::store(out + v * kLanes, sum[0][v]);
      Isa::store(out + (kVectors + v) * kLanes, sum[1][v]);
    }
  }

  // The body for a number of rows, 1 to most_rows().
  template <int kVectors>
  static Body body(int64_t rows) {
    constexpr int kMost = most_rows<kVectors>();
    static_assert(kMost >= 3 && kMost <= 8, "the table below");
    static constexpr Body kBodies[] = {
        block<kVectors, 1>,      block<kVectors, 2>, block<kVectors, 3>,      block < kVectors,
        kMost < 4 ? kMost : 4 >, block < kVectors,   kMost < 5 ? kMost : 5 >, block < kVectors,
        kMost < 6 ? kMost : 6 >, block < kVectors,   kMost < 7 ? kMost : 7 >, block < kVectors,
        kMost < 8 ? kMost : 8 >,
    };
    return kBodies[rows - 1];
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
    const int64_t each = block_rows<kVectors>(job.row_count);
    for (int64_t p = job.first_panel; p < job.end_panel; ++p) {
      const int64_t column = p * kVectors * kLanes;
      for (int64_t r = 0; r < job.row_count; r += each) {
        const int64_t count = job.row_count - r < each ? job.row_count - r : each;
        body<kVectors>(count)(static_cast<const Operand*>(job.rows) + r * job.row_stride,
                              job.row_stride, job.panels + p * panel_bytes(job.words, kVectors),
                              job.words, job.bias + column, job.out + r * job.out_stride + column,
                              job.out_stride);
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

// Few rows with a plain weight: each of its rows is read once, where it lies.
#pragma once

#include <cstdint>

#include "linear/finish-inl.h"
#include "linear/pack-inl.h"

namespace torchyard {
namespace {

template <class Format>
struct LinearDots {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  using Element = typename Format::Element;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kStep = kLanes * Format::kPair;

  // Outputs whose sums are stored together: one finished tile.
  static constexpr int kTile = 16;

  static void run(const LinearArgs& args, const LinearBlock& block, int64_t first, int64_t last) {
    float sums[kDotRows * kTile];
    const int64_t words = dot_words(args.depth, Format::kPair);
    const Element* weight =
        static_cast<const Element*>(args.weight.data) + block.batch * args.weight.batch;
    for (int64_t column = first; column < last; column += kTile) {
      const int count = static_cast<int>(last - column < kTile ? last - column : kTile);
      for (int i = 0; i < count; ++i) {
        row_of(block.rows, weight + (column + i) * args.weight.row, block.words, words, args.depth,
               sums + i);
      }
      for (int i = count; i < kTile; ++i) {
        for (int r = 0; r < block.rows; ++r) sums[r * kTile + i] = 0.0f;
      }
      finish_tile<Format>(args, block, sums, kTile, column, count);
    }
  }

 private:
  template <int kRows = kDotRows>
  static void row_of(int rows, const Element* weight, const uint32_t* x, int64_t words,
                     int64_t depth, float* sums) {
    if constexpr (kRows > 0) {
      if (rows == kRows) {
        dot<kRows>(weight, x, words, depth, sums);
      } else {
        row_of<kRows - 1>(rows, weight, x, words, depth, sums);
      }
    }
  }

  // One row of the weight with kRows rows of x. Eight or more sums at once, against the latency of
  // an addition; a row at a time, because several streams from memory are slower than one.
  template <int kRows>
  static TORCHYARD_NOINLINE void dot(const Element* weight, const uint32_t* x, int64_t words,
                                     int64_t depth, float* sums) {
    constexpr int kParts = kRows == 1 ? 8 : 4;
    constexpr int64_t kAhead = 2048 / static_cast<int64_t>(sizeof(Element));
    Vec sum[kParts][kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[i][r] = Isa::zero();
    }
    int64_t at = 0;
    for (; at + kParts * kStep <= depth; at += kParts * kStep) {
#pragma GCC unroll 8
      for (int i = 0; i < kParts; ++i) {
        const Element* place = weight + at + i * kStep;
        if (i * kStep * static_cast<int>(sizeof(Element)) % 64 == 0) {
          __builtin_prefetch(place + kAhead);
        }
        const Vec right = Format::words(place, kStep);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const Vec left = Isa::load(x + r * words + at / Format::kPair + i * kLanes);
          sum[i][r] = Format::dot(sum[i][r], left, right);
        }
      }
    }
    for (; at < depth; at += kStep) {
      const Vec right = Format::words(weight + at, LinearPacker<Format>::least(depth - at, kStep));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Vec left = Isa::load(x + r * words + at / Format::kPair);
        sum[0][r] = Format::dot(sum[0][r], left, right);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      Vec total = sum[0][r];
#pragma GCC unroll 8
      for (int i = 1; i < kParts; ++i) total = Isa::add(total, sum[i][r]);
      sums[r * kTile] = Isa::sum(total);
    }
  }
};

}  // namespace
}  // namespace torchyard

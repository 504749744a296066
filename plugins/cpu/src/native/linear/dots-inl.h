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
  // Rows of the weight and of x that are multiplied at once, a sum for each pair. A vector of x
  // comes from the second-level cache and is used for every row of the weight.
  static constexpr bool kManyRegisters = Isa::kTileRows * Isa::kTileVectors >= 24;
  static constexpr int kOutputs = kManyRegisters ? 4 : 2;
  static constexpr int kRows = kManyRegisters ? 6 : 5;
  // More rows of x than that meet the rows of the weight in turns, and come from the second-level
  // cache for four of them; to pack the weight costs less, except where that widens it.
  static constexpr bool kReady = sizeof(Element) * Format::kPair == sizeof(float);
  static constexpr int kMostRows = kReady ? kRows : kDotRows;

  static void run(const LinearArgs& args, const LinearBlock& block, int64_t first, int64_t last,
                  std::byte* memory) {
    float sums[2 * kDotRows * kTile];
    const Element* weight =
        static_cast<const Element*>(args.weight.data) + block.batch * args.weight.batch;
    for (int64_t column = first; column < last; column += kTile) {
      const int count = static_cast<int>(last - column < kTile ? last - column : kTile);
      for (int half = 0; half < args.halves(); ++half) {
        tile(args, block, weight + (half * args.columns() + column) * args.weight.row, count,
             sums + half * kDotRows * kTile);
      }
      finish_tile<Format>(args, block, sums, kTile, kDotRows * kTile, column, count, memory);
    }
  }

 private:
  // Sums of `count` rows of the weight with all rows of x, [rows][kTile], and 0 beside them.
  static void tile(const LinearArgs& args, const LinearBlock& block, const Element* weight,
                   int count, float* sums) {
    const int64_t words = dot_words(args.depth, Format::kPair);
    const int64_t stride = args.weight.row;
    for (int r = 0; r < block.rows; ++r) {
      for (int i = count; i < kTile; ++i) sums[r * kTile + i] = 0.0f;
    }
    int i = 0;
    for (; block.rows > 1 && i + kOutputs <= count; i += kOutputs) {
      const int groups = (block.rows + kRows - 1) / kRows;
      for (int g = 0; g < groups; ++g) {
        const int from = block.rows * g / groups;
        some<kOutputs>(block.rows * (g + 1) / groups - from, weight + i * stride, stride,
                       block.words + from * words, words, args.depth, sums + from * kTile + i);
      }
    }
    for (; i < count; ++i) {
      for (int r = 0; r < block.rows; ++r) {
        dots<1, 1, 8>(weight + i * stride, 0, block.words + r * words, words, args.depth,
                      sums + r * kTile + i);
      }
    }
  }

  template <int kOut, int kIn = kRows>
  static void some(int rows, const Element* weight, int64_t stride, const uint32_t* x,
                   int64_t words, int64_t depth, float* sums) {
    if constexpr (kIn > 0) {
      if (rows == kIn) {
        dots<kOut, kIn, 1>(weight, stride, x, words, depth, sums);
      } else {
        some<kOut, kIn - 1>(rows, weight, stride, x, words, depth, sums);
      }
    }
  }

  // kOut rows of the weight with kIn rows of x, kParts sums of each against the latency of an
  // addition. One row of x takes one of the weight: several streams from memory are slower.
  template <int kOut, int kIn, int kParts>
  static TORCHYARD_NOINLINE void dots(const Element* weight, int64_t stride, const uint32_t* x,
                                      int64_t words, int64_t depth, float* sums) {
    constexpr int64_t kAhead = 2048 / static_cast<int64_t>(sizeof(Element));
    Vec sum[kParts][kOut][kIn];
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) {
#pragma GCC unroll 4
      for (int o = 0; o < kOut; ++o) {
#pragma GCC unroll 6
        for (int r = 0; r < kIn; ++r) sum[i][o][r] = Isa::zero();
      }
    }
    int64_t at = 0;
    for (; at + kParts * kStep <= depth; at += kParts * kStep) {
#pragma GCC unroll 8
      for (int i = 0; i < kParts; ++i) {
        Vec right[kOut];
#pragma GCC unroll 4
        for (int o = 0; o < kOut; ++o) {
          const Element* place = weight + o * stride + at + i * kStep;
          if (i * kStep * static_cast<int>(sizeof(Element)) % 64 == 0) {
            __builtin_prefetch(place + kAhead);
          }
          right[o] = Format::words(place, kStep);
        }
#pragma GCC unroll 6
        for (int r = 0; r < kIn; ++r) {
          const Vec left = Isa::load(x + r * words + at / Format::kPair + i * kLanes);
#pragma GCC unroll 4
          for (int o = 0; o < kOut; ++o) sum[i][o][r] = Format::dot(sum[i][o][r], left, right[o]);
        }
      }
    }
    for (; at < depth; at += kStep) {
      const int present = LinearPacker<Format>::least(depth - at, kStep);
#pragma GCC unroll 4
      for (int o = 0; o < kOut; ++o) {
        const Vec right = Format::words(weight + o * stride + at, present);
#pragma GCC unroll 6
        for (int r = 0; r < kIn; ++r) {
          const Vec left = Isa::load(x + r * words + at / Format::kPair);
          sum[0][o][r] = Format::dot(sum[0][o][r], left, right);
        }
      }
    }
#pragma GCC unroll 4
    for (int o = 0; o < kOut; ++o) {
#pragma GCC unroll 6
      for (int r = 0; r < kIn; ++r) {
        Vec total = sum[0][o][r];
#pragma GCC unroll 8
        for (int i = 1; i < kParts; ++i) total = Isa::add(total, sum[i][o][r]);
        sums[r * kTile + o] = Isa::sum(total);
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

// Few rows with a plain weight, each of whose rows is read from memory once, in place.
//
// A tile of outputs is multiplied with x chunk by chunk of the depth. A chunk of x stays in the
// first-level cache, and the tile's weight in the second: it is asked for while the tile before it
// is multiplied, in the order in which rows lie that follow one another, and evenly, so that
// neither memory nor multiplications wait.
#pragma once

#include <cstdint>

#include "base/read_ahead.h"
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

  // Outputs of a tile at most, and bytes of the weight where it is not a single step of kOutputs:
  // the second-level cache holds these twice, and x.
  static constexpr int kTile = 32;
  static constexpr int64_t kTileBytes = 128 << 10;
  // Rows of the weight and of x that are multiplied at once, a sum for each pair.
  static constexpr bool kManyRegisters = Isa::kTileRows * Isa::kTileVectors >= 24;
  static constexpr int kOutputs = kManyRegisters ? 4 : 2;
  static constexpr int kRows = kManyRegisters ? 6 : 5;
  // Words of a chunk: of x, and of the rows of the weight that are multiplied and that come next.
  static constexpr int64_t kChunk = 10240;
  // With more rows arithmetic sets the pace, and packing costs less than sums across vectors;
  // except where it widens.
  static constexpr bool kReady = sizeof(Element) * Format::kPair == sizeof(float);
  static constexpr int kMostRows = kReady ? 16 : kDotRows;

  static void run(const LinearArgs& args, const LinearBlock& block, int64_t first, int64_t last,
                  std::byte* memory) {
    float sums[2 * kDotRows * kTile];
    const Element* weight =
        static_cast<const Element*>(args.weight.data) + block.batch * args.weight.batch;
    int64_t most = kTile;
    const int64_t row_bytes = args.depth * static_cast<int64_t>(sizeof(Element));
    while (most > kOutputs && most * row_bytes > kTileBytes) most /= 2;
    for (int64_t column = first; column < last; column += most) {
      const int count = LinearPacker<Format>::least(last - column, static_cast<int>(most));
      for (int half = 0; half < args.halves(); ++half) {
        const int64_t output = half * args.columns() + column;
        tile(args, block, weight + output * args.weight.row, count, sums + half * kDotRows * kTile);
      }
      finish_tile<Format>(args, block, sums, kTile, kDotRows * kTile, column, count, memory);
    }
  }

 private:
  // Rows of the weight, `stride` elements apart, and rows of x, of which one vector lies `step`
  // words after the one before it; both `depth` elements long.
  struct Stretch {
    const Element* weight;
    int64_t stride;
    const uint32_t* x;
    int64_t step;
    int64_t depth;
    const Element* later;  // of which `fetched` vectors are asked for at each step
    int fetched;
    ReadAhead ahead;
  };

  // Sums of `count` rows of the weight with all rows of x, [rows][kTile].
  static void tile(const LinearArgs& args, const LinearBlock& block, const Element* weight,
                   int count, float* sums) {
    const int64_t stride = args.weight.row;
    const int rows = block.rows;
    constexpr int64_t kBytes = sizeof(Element);
    const bool by_parts = ReadAhead::by_parts(args.weight_elements() * kBytes);
    for (int i = 0; i < rows * kTile; ++i) sums[i] = 0.0f;
    if (rows == 1 && by_parts) {
      // One after another, in memory order, where prefetching is what limits them. Elsewhere
      // several are read at once: each part of x is used by them all, where x and one row of the
      // weight would fill the first cache between them.
      const ReadAhead ahead(by_parts, 2048);
      for (int i = 0; i < count; ++i) {
        dots<1, 1, 8>({weight + i * stride, 0, block.words, kLanes, args.depth, nullptr, 0, ahead},
                      sums + i);
      }
      return;
    }
    const int groups = (rows + kRows - 1) / kRows;
    const int64_t most = kChunk / (rows + 2 * kOutputs) / kLanes * kStep;
    const Element* later = weight + count * stride;
    const ReadAhead ahead(by_parts, 0, count * stride * kBytes);
    for (int64_t first = 0; first < args.depth; first += most) {
      const int64_t depth = args.depth - first < most ? args.depth - first : most;
      for (int i = 0; i < count;) {
        const int taken = i + kOutputs <= count ? kOutputs : 1;
        for (int g = 0; g < groups; ++g) {
          const int from = rows * g / groups;
          const int fetched = taken * (g + 1) / groups - taken * g / groups;
          const Stretch stretch = {weight + i * stride + first,
                                   stride,
                                   block.words + (first / kStep * rows + from) * kLanes,
                                   rows * kLanes,
                                   depth,
                                   later,
                                   fetched,
                                   ahead};
          const int present = rows * (g + 1) / groups - from;
          float* to = sums + from * kTile + i;
          taken == 1 ? some<1>(present, stretch, to) : some<kOutputs>(present, stretch, to);
          later += fetched * depth;
        }
        i += taken;
      }
    }
  }

  template <int kOut, int kIn = kRows>
  static void some(int rows, const Stretch& stretch, float* sums) {
    if constexpr (kIn > 0) {
      if (rows == kIn) {
        dots<kOut, kIn, 1>(stretch, sums);
      } else {
        some<kOut, kIn - 1>(rows, stretch, sums);
      }
    }
  }

  // kOut rows of the weight with kIn rows of x, kParts sums of each against the latency of an
  // addition.
  template <int kOut, int kIn, int kParts>
  static TORCHYARD_NOINLINE void dots(const Stretch& of, float* sums) {
    constexpr int kLine = ReadAhead::kLine / static_cast<int>(sizeof(Element));
    const ReadAhead ahead = of.ahead;
    const Element* later = of.later;
    const uint32_t* x = of.x;
    Vec sum[kParts][kOut][kIn];
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) {
#pragma GCC unroll 4
      for (int o = 0; o < kOut; ++o) {
#pragma GCC unroll 8
        for (int r = 0; r < kIn; ++r) sum[i][o][r] = Isa::zero();
      }
    }
    int64_t at = 0;
    for (; at + kParts * kStep <= of.depth; at += kParts * kStep) {
#pragma GCC unroll 8
      for (int i = 0; i < kParts; ++i) {
        Vec right[kOut];
#pragma GCC unroll 4
        for (int o = 0; o < kOut; ++o) {
          const Element* place = of.weight + o * of.stride + at + i * kStep;
          if (kParts > 1 && i * kStep % kLine == 0) ahead.first_level(place);
          right[o] = Format::words(place, kStep);
        }
        if (kParts == 1) {
          for (int o = 0; o < of.fetched; ++o, later += kStep) {
            // Once where two vectors are a line.
            if (kStep % kLine == 0 || (reinterpret_cast<uintptr_t>(later) & 32) == 0) {
              ahead.second_level(later);
            }
          }
        }
#pragma GCC unroll 8
        for (int r = 0; r < kIn; ++r) {
          const Vec left = Isa::load(x + r * kLanes);
#pragma GCC unroll 4
          for (int o = 0; o < kOut; ++o) sum[i][o][r] = Format::dot(sum[i][o][r], left, right[o]);
        }
        x += of.step;
      }
    }
    for (; at < of.depth; at += kStep) {
      const int present = LinearPacker<Format>::least(of.depth - at, kStep);
#pragma GCC unroll 4
      for (int o = 0; o < kOut; ++o) {
        const Vec right = Format::words(of.weight + o * of.stride + at, present);
#pragma GCC unroll 8
        for (int r = 0; r < kIn; ++r) {
          sum[0][o][r] = Format::dot(sum[0][o][r], Isa::load(x + r * kLanes), right);
        }
      }
      x += of.step;
    }
    if constexpr (kOut * kIn == 1) {
      Vec total = sum[0][0][0];
#pragma GCC unroll 8
      for (int i = 1; i < kParts; ++i) total = Isa::add(total, sum[i][0][0]);
      sums[0] += Isa::sum(total);
      return;
    }
    // kLanes sums at a time, those of a row of x side by side.
    constexpr int kSums = kOut * kIn;
    float totals[(kSums + kLanes - 1) / kLanes * kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kSums; i += kLanes) {
      Vec some_sums[kLanes];
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) {
        some_sums[l] = i + l < kSums ? sum[0][(i + l) % kOut][(i + l) / kOut] : Isa::zero();
      }
      Isa::store(totals + i, Isa::lane_sums(some_sums));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kIn; ++r) {
#pragma GCC unroll 4
      for (int o = 0; o < kOut; ++o) sums[r * kTile + o] += totals[r * kOut + o];
    }
  }
};

}  // namespace
}  // namespace torchyard

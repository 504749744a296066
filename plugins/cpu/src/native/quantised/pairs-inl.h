// Many rows of bfloat16: a panel is turned into pairs of bfloat16 once.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "quantised/panel-inl.h"
#include "simd/avx512.h"

namespace torchyard {
namespace {

// From so many rows on turning codes into pairs once pays; fewer look them up for each six.
template <int kBits>
constexpr int64_t kPairRows = kBits == 4 ? 128 : 16;
// Depth of what is turned at once: 64 columns of it are 128 KiB, a part of the second cache.
constexpr int64_t kPairDepth = 1024;
static_assert(kLongestSegment % kPairDepth == 0, "a segment ends with a part");

template <int kBits>
struct PairPanel {
  using Isa = Avx512;
  using Sum = FloatSum<Isa>;
  using Floats = CodeFloats<Isa, kBits>;
  using Tile = QuantisedTile<Sum, kBits>;
  static constexpr int kVectors = 4;

  // What the codes of an octet are multiplied by, and what is taken from them first.
  struct Group {
    __m512 scale[kVectors];
    __m512 offset[kVectors];
  };

  static TORCHYARD_INLINE Group group_of(const QuantisedArgs& args, int64_t panel, int64_t depth) {
    Group found;
    const int64_t group = panel * args.groups() + depth / args.group;
    for (int v = 0; v < kVectors; ++v) {
      const __m512 weight = Tile::scale(args, group * kQuantisedColumns + v * Isa::kLanes);
      found.scale[v] = Isa::mul(weight, Isa::set1(Sum::kWeight));
      found.offset[v] = Isa::zero();
      if (args.zeros != nullptr) {
        const uint8_t* zeros = args.zeros + group * kQuantisedColumns + v * Isa::kLanes;
        found.offset[v] = Isa::mul(Tile::offset(zeros), Isa::set1(1.0f / Sum::kWeight));
      }
    }
    return found;
  }

  // pairs[octets * 4][64] of the codes of `octets` from `depth` on, in PairSum's order. Of groups
  // they are the weights, rounded to bfloat16 as the weight was before; otherwise the codes, which
  // that holds exactly.
  static TORCHYARD_NOINLINE void turn(const QuantisedArgs& args, int64_t panel, int64_t depth,
                                      int64_t octets, uint32_t* pairs) {
    const __m512i interleave =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const uint8_t* codes =
        args.codes + panel * args.panel_bytes() + depth / kQuantisedPad * Tile::kOctetBytes;
    Group group;
    for (int64_t o = 0; o < octets; ++o, codes += Tile::kOctetBytes) {
      const int64_t at = depth + o * kQuantisedPad;
      if (args.group != 0 && (o == 0 || at % args.group == 0)) group = group_of(args, panel, at);
      for (int half = 0; half < 2; ++half) {
        for (int v = 0; v < kVectors; ++v) {
          const auto words = Floats::load(codes + v * 64, half);
          for (int j = 0; j < 2; ++j) {
            __m512 low = Floats::value(words, j);
            __m512 high = Floats::value(words, j + 2);
            if (args.group != 0) {
              low = Isa::mul(Isa::sub(low, group.offset[v]), group.scale[v]);
              high = Isa::mul(Isa::sub(high, group.offset[v]), group.scale[v]);
            }
            const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
            _mm512_storeu_si512(pairs + j * kQuantisedColumns + v * 16,
                                _mm512_permutexvar_epi16(interleave, both));
          }
        }
        pairs += 2 * kQuantisedColumns;
      }
    }
  }

  // Adds the products of one part of the depth to the sums of a few rows.
  template <int kRows>
  static TORCHYARD_NOINLINE void tile(const QuantisedArgs& args, const QuantisedRows& rows,
                                      int64_t row, int64_t panel, int64_t depth, int64_t octets,
                                      const uint32_t* pairs, float* sums) {
    const int64_t x_stride = rows.row_bytes / 4;
    const uint32_t* x = reinterpret_cast<const uint32_t*>(rows.words) + row * x_stride + depth / 2;
    __m512 total[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) total[r][v] = _mm512_setzero_ps();
    }
    for (int64_t w = 0; w < octets * 4; ++w, ++x, pairs += kQuantisedColumns) {
      __m512bh column[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        column[v] = (__m512bh)_mm512_loadu_si512(pairs + v * 16);
      }
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m512bh word = (__m512bh)_mm512_set1_epi32(static_cast<int>(x[r * x_stride]));
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          total[r][v] = _mm512_dpbf16_ps(total[r][v], column[v], word);
        }
      }
    }
    if (args.group == 0) {
      // What the zeros add is the whole segment's: with its first part.
      QuantisedArgs part = args;
      if (depth % args.segment() != 0) part.zeros = nullptr;
      const int64_t segments = args.segments();
      const int32_t* row_sums = rows.sums + row * segments + depth / args.segment();
      Tile::template add<kRows, kVectors>(part, total, {panel, row_sums, segments}, 0, sums);
      return;
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* place = sums + r * kQuantisedColumns + v * Isa::kLanes;
        Isa::store(place, Isa::add(total[r][v], Isa::load(place)));
      }
    }
  }

  static void run(const QuantisedArgs& args, const QuantisedRows& rows, int64_t panel,
                  std::byte* scratch) {
    const int64_t count = rows.end - rows.first;
    uint32_t* pairs = reinterpret_cast<uint32_t*>(scratch);
    float* sums = reinterpret_cast<float*>(scratch + kPairDepth / 2 * kQuantisedColumns * 4);
    std::memset(sums, 0, static_cast<size_t>(count * kQuantisedColumns) * sizeof(float));
    for (int64_t depth = 0; depth < args.padded(); depth += kPairDepth) {
      const int64_t left = args.padded() - depth;
      const int64_t octets = (left < kPairDepth ? left : kPairDepth) / kQuantisedPad;
      turn(args, panel, depth, octets, pairs);
      int64_t row = 0;
      const auto place = [&] { return sums + row * kQuantisedColumns; };
      for (; row + 6 <= count; row += 6) {
        tile<6>(args, rows, row, panel, depth, octets, pairs, place());
      }
      if (row + 4 <= count) {
        tile<4>(args, rows, row, panel, depth, octets, pairs, place());
        row += 4;
      }
      for (; row < count; ++row) {
        tile<1>(args, rows, row, panel, depth, octets, pairs, place());
      }
    }
    store_panel<Isa>(args, rows, false, 0, count, panel, sums);
  }
};

// As Quantised, and bfloat16 by pairs: many rows by a panel's that are made once.
template <class Dot>
struct QuantisedPairs : Quantised<Avx512, Dot> {
  using Base = Quantised<Avx512, Dot>;

  static QuantisedSum sum(const QuantisedArgs& args) {
    const bool pairs = !args.bytes && args.element == QuantisedElement::kBFloat16;
    return pairs ? QuantisedSum::kPairs : Base::sum(args);
  }
  static size_t scratch_bytes(const QuantisedArgs& args, int64_t rows) {
    // A row of 8 bits that is not finite is multiplied with whole codes.
    const bool made = args.bits == 8 || rows >= kPairRows<4>;
    if (sum(args) != QuantisedSum::kPairs || !made) return 0;
    return static_cast<size_t>((kPairDepth / 2 + rows) * kQuantisedColumns) * 4;
  }
  static void prepare(const QuantisedArgs& args, const QuantisedRows& rows, int64_t from,
                      int64_t to) {
    PrepareRows<Avx512>::run(args, sum(args), rows, from, to);
  }
  static void panel(const QuantisedArgs& args, const QuantisedRows& rows, int64_t panel,
                    std::byte* scratch) {
    if (sum(args) != QuantisedSum::kPairs) return Base::panel(args, rows, panel, scratch);
    const bool few = rows.end - rows.first < (args.bits == 4 ? kPairRows<4> : kPairRows<8>);
    if (args.bits == 4) {
      few ? Panel<PairSum<1>, 4>::run(args, rows, panel)
          : PairPanel<4>::run(args, rows, panel, scratch);
      return;
    }
    if (!few) return PairPanel<8>::run(args, rows, panel, scratch);
    Panel<PairSum<1>, 8>::run(args, rows, panel);
    for (int64_t r = 0; r < rows.end - rows.first; ++r) {
      if (rows.scales[r] != 0.0f) continue;
      QuantisedRows alone = rows;
      alone.words += r * rows.row_bytes;
      alone.sums += r * args.segments();
      alone.first += r;
      alone.end = alone.first + 1;
      PairPanel<8>::run(args, alone, panel, scratch);
    }
  }
};

}  // namespace
}  // namespace torchyard

// Many rows of bfloat16: codes are turned into pairs of bfloat16 once, which holds them exactly.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "quantised/panel-inl.h"
#include "simd/avx512.h"

namespace torchyard {
namespace {

// From so many rows on turning codes into pairs pays.
constexpr int64_t kPairRows = 8;
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

  // pairs[octets * 4][64] of the codes of `octets`.
  static TORCHYARD_NOINLINE void turn(const uint8_t* codes, int64_t octets, uint32_t* pairs) {
    for (int64_t o = 0; o < octets; ++o, codes += Tile::kOctetBytes) {
      for (int half = 0; half < 2; ++half) {
        for (int v = 0; v < kVectors; ++v) {
          const auto words = Floats::load(codes + v * 64, half);
          for (int j = 0; j < 4; j += 2) {
            const __m512i low = _mm512_castps_si512(Floats::value(words, j));
            const __m512i high = _mm512_castps_si512(Floats::value(words, j + 1));
            _mm512_storeu_si512(pairs + j / 2 * kQuantisedColumns + v * 16,
                                _mm512_or_si512(_mm512_srli_epi32(low, 16), high));
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
    const int64_t longest = args.segment() / kQuantisedPad;
    for (int64_t done = 0; done < octets; done += longest) {
      const int64_t count = (octets - done < longest ? octets - done : longest) * 4;
      __m512 total[kRows][kVectors];
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) total[r][v] = _mm512_setzero_ps();
      }
      for (int64_t w = 0; w < count; ++w, ++x, pairs += kQuantisedColumns) {
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
      const int64_t s = (depth + done * kQuantisedPad) / args.segment();
      // What the zeros add is the whole segment's: with its first part.
      const bool begins = (depth + done * kQuantisedPad) % args.segment() == 0;
      const int32_t* row_sums = rows.sums + row * args.segments();
      if (begins || args.zeros == nullptr) {
        Tile::template add<kRows, kVectors>(args, total, s, panel, 0, row_sums, sums);
      } else {
        QuantisedArgs plain = args;
        plain.zeros = nullptr;
        Tile::template add<kRows, kVectors>(plain, total, s, panel, 0, row_sums, sums);
      }
    }
  }

  static void run(const QuantisedArgs& args, const QuantisedRows& rows, int64_t panel,
                  std::byte* scratch) {
    const int64_t count = rows.end - rows.first;
    uint32_t* pairs = reinterpret_cast<uint32_t*>(scratch);
    float* sums = reinterpret_cast<float*>(scratch + kPairDepth / 2 * kQuantisedColumns * 4);
    std::memset(sums, 0, static_cast<size_t>(count * kQuantisedColumns) * sizeof(float));
    const uint8_t* codes = args.codes + panel * args.panel_bytes();
    for (int64_t depth = 0; depth < args.padded(); depth += kPairDepth) {
      const int64_t left = args.padded() - depth;
      const int64_t octets = (left < kPairDepth ? left : kPairDepth) / kQuantisedPad;
      turn(codes + depth / kQuantisedPad * Tile::kOctetBytes, octets, pairs);
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

// As Quantised, and many rows of bfloat16 by pairs.
template <class Dot>
struct QuantisedPairs : Quantised<Avx512, Dot> {
  using Base = Quantised<Avx512, Dot>;

  static QuantisedSum sum(const QuantisedArgs& args) {
    const bool pairs =
        !args.bytes && args.element == QuantisedElement::kBFloat16 && args.rows >= kPairRows;
    return pairs ? QuantisedSum::kPairs : Base::sum(args);
  }
  static size_t scratch_bytes(const QuantisedArgs& args, int64_t rows) {
    if (sum(args) != QuantisedSum::kPairs) return 0;
    return static_cast<size_t>((kPairDepth / 2 + rows) * kQuantisedColumns) * 4;
  }
  static void prepare(const QuantisedArgs& args, const QuantisedRows& rows, int64_t from,
                      int64_t to) {
    PrepareRows<Avx512>::run(args, sum(args), rows, from, to);
  }
  static void panel(const QuantisedArgs& args, const QuantisedRows& rows, int64_t panel,
                    std::byte* scratch) {
    if (sum(args) != QuantisedSum::kPairs) return Base::panel(args, rows, panel, scratch);
    if (args.bits == 8) return PairPanel<8>::run(args, rows, panel, scratch);
    PairPanel<4>::run(args, rows, panel, scratch);
  }
};

}  // namespace
}  // namespace torchyard

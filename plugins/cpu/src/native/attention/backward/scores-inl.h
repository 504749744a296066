// From two products of one tile and one panel to weights p and slopes ds, for unmodified scores.
#pragma once

#include <cstdint>

#include "attention/backward/layout.h"
#include "attention/tile/micro_kernel-inl.h"

namespace torchyard {
namespace {

// What a tile's rows bring.
struct TileRows {
  const uint32_t* query;     // [words][kTileRows]
  const uint32_t* grad_out;  // likewise
  const float* shift;        // -lse, of unmodified scores in units of log2
  const float* minus_delta;
};

template <class Format, int kRows>
struct PlainScores {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using L = Layout<Format>;
  static constexpr int kVectors = Isa::kTileVectors;

  // Writes p to `tile` [kRows][kPanelKeys] and, as words, to `out` ([sub-panel] `sub_stride` words
  // apart, rows as words).
  template <bool kMasked>
  static TORCHYARD_NOINLINE void weights(const BackwardLayout<Format>& layout, const TileRows& rows,
                                         float to_log2, const uint32_t* packed_keys,
                                         const uint64_t (&word)[kRows], float* tile, uint32_t* out,
                                         int64_t sub_stride) {
    const Vec factor = Isa::set1(to_log2);
    const int64_t count = layout.head.key_words;
#pragma GCC unroll 1
    for (int sub = 0; sub < L::kSubPanels; ++sub) {
      Vec score[kRows][kVectors];
      clear<Format, kRows, kVectors>(score);
      accumulate<Format, 1, Isa::kTileRows>(score, rows.query,
                                            packed_keys + sub * count * L::kTileKeys, count);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const Vec shift = Isa::set1(rows.shift[r]);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          Vec p = Isa::template exp2<typename Format::Exp2>(Isa::fma(score[r][j], factor, shift));
          if (kMasked) p = Isa::keep(Isa::mask(word[r], sub * kVectors + j), p);
          score[r][j] = p;
          Isa::store(tile + r * kPanelKeys + sub * L::kTileKeys + j * Isa::kLanes, p);
        }
      }
      Format::template store_rows<kRows, kVectors>(out + sub * sub_stride, score);
    }
  }

  // Writes ds as words to `out`, as `weights` does, and to `strip` [kRows][kStripStride].
  template <bool kMasked>
  static TORCHYARD_NOINLINE void slopes(const BackwardLayout<Format>& layout, const TileRows& rows,
                                        const uint32_t* packed_values,
                                        const uint64_t (&word)[kRows], const float* tile,
                                        uint32_t* out, int64_t sub_stride, uint32_t* strip) {
    const int64_t count = layout.value.key_words;
#pragma GCC unroll 1
    for (int sub = 0; sub < L::kSubPanels; ++sub) {
      Vec slope[kRows][kVectors];
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) slope[r][j] = Isa::set1(rows.minus_delta[r]);
      }
      accumulate<Format, 1, Isa::kTileRows>(slope, rows.grad_out,
                                            packed_values + sub * count * L::kTileKeys, count);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          const float* p = tile + r * kPanelKeys + sub * L::kTileKeys + j * Isa::kLanes;
          Vec ds = Isa::mul(slope[r][j], Isa::load(p));
          if (kMasked) ds = Isa::keep(Isa::mask(word[r], sub * kVectors + j), ds);
          slope[r][j] = ds;
        }
        Format::template store_probabilities<kVectors>(
            strip + r * L::kStripStride + sub * (L::kTileKeys / Format::kPair), slope[r]);
      }
      Format::template store_rows<kRows, kVectors>(out + sub * sub_stride, slope);
    }
  }
};

}  // namespace
}  // namespace torchyard

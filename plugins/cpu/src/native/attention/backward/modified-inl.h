// From two products of one tile and its panels to weights p and slopes ds, for scores that a
// program modifies, and the tile's part of the gradients of what the program captures.
//
// Both products come first; then, row by row while a row's values are in the first-level cache, the
// program, which computes the modified scores and their derivatives, and everything made of these.
#pragma once

#include <cstdint>

#include "attention/backward/captured-inl.h"
#include "attention/backward/scores-inl.h"
#include "attention/tile/score-inl.h"
#include "attention/tile/tile-inl.h"

namespace torchyard {
namespace {

// Where one of a tile's panels has its operands and results.
struct PanelPlace {
  const uint32_t* keys;
  const uint32_t* values;
  uint32_t* weights;  // [sub-panel][rows as words][kTileKeys]
  uint32_t* slopes;
};

template <class Format, int kRows>
struct ModifiedScores {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using L = Layout<Format>;
  using Keys = TilePanel<kRows>;
  static constexpr int kVectors = Isa::kTileVectors;
  static constexpr int kPanelVectors = kPanelKeys / Isa::kLanes;

  // Writes p and ds of `panels` panels, as PlainScores does. `buffer` is BackwardLayout's
  // `modified`, `row` the tile's first row in the program's numbering.
  static TORCHYARD_NOINLINE void run(const BackwardLayout<Format>& layout, const TileRows& rows,
                                     float scale, const ScoreGradient& gradient,
                                     ScoreTile<Format>& program, int64_t row, const Keys* keys,
                                     const PanelPlace* places, int panels, int64_t sub_stride,
                                     float* buffer, void* const* captured, uint32_t* strip) {
    const int64_t stride = panels * kPanelKeys;
    float* scores = buffer;
    float* weights = scores + kRows * stride;
    float* slopes = weights + kRows * stride;
    const float none[kRows] = {};
    for (int p = 0; p < panels; ++p) {
      product(rows.query, layout.head.key_words, places[p].keys, scale, none,
              scores + p * kPanelKeys, stride);
      product(rows.grad_out, layout.value.key_words, places[p].values, 1.0f, rows.minus_delta,
              slopes + p * kPanelKeys, stride);
    }
    program.begin(row, keys, panels);
    for (int r = 0; r < kRows; ++r) {
      float* weight = weights + r * stride;
      float* slope = slopes + r * stride;
      if (blind(r, keys, panels)) {
        for (int64_t i = 0; i < stride; i += Isa::kLanes) {
          Isa::store(weight + i, Isa::zero());
          Isa::store(slope + i, Isa::zero());
        }
        continue;
      }
      const float* raw = scores + r * stride;
      const ValueSource modified = program.apply(r, raw, keys);
      weigh(modified, rows.shift[r], r, keys, panels, weight, slope);
      for (int64_t i = 0; i < gradient.site_count; ++i) {
        const ScoreSite& site = gradient.sites[i];
        CapturedSums<Format, kRows>::add(gradient, site, program, r, raw, slope, keys, panels,
                                         captured[site.tensor]);
      }
      through(program.source(gradient.slope, r, reinterpret_cast<const char*>(raw)), r, keys,
              panels, slope);
    }
    for (int p = 0; p < panels; ++p) {
      for (int sub = 0; sub < L::kSubPanels; ++sub) {
        const int64_t at = p * kPanelKeys + sub * L::kTileKeys;
        store(weights + at, stride, places[p].weights + sub * sub_stride, nullptr);
        store(slopes + at, stride, places[p].slopes + sub * sub_stride,
              strip + p * L::kPanelWords + sub * (L::kTileKeys / Format::kPair));
      }
    }
  }

 private:
  static bool blind(int r, const Keys* keys, int panels) {
    for (int p = 0; p < panels; ++p) {
      if (!keys[p].masked || keys[p].word[r] != 0) return false;
    }
    return true;
  }

  // out(r, :) = added[r] + factor * left(r, :) . right, for one panel; `stride` between rows.
  static TORCHYARD_NOINLINE void product(const uint32_t* left, int64_t count, const uint32_t* right,
                                         float factor, const float* added, float* out,
                                         int64_t stride) {
    const Vec scale = Isa::set1(factor);
#pragma GCC unroll 1
    for (int sub = 0; sub < L::kSubPanels; ++sub) {
      Vec sum[kRows][kVectors];
      clear<Format, kRows, kVectors>(sum);
      accumulate<Format, 1, Isa::kTileRows>(sum, left, right + sub * count * L::kTileKeys, count);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const Vec more = Isa::set1(added[r]);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          Isa::store(out + r * stride + sub * L::kTileKeys + j * Isa::kLanes,
                     Isa::fma(sum[r][j], scale, more));
        }
      }
    }
  }

  // p = exp(modified - lse), 0 where the row does not see the key; slope *= p.
  static void weigh(ValueSource modified, float minus_lse, int r, const Keys* keys, int panels,
                    float* weight, float* slope) {
    const Vec shift = Isa::set1(minus_lse);
    const Vec to_log2 = Isa::set1(static_cast<float>(kLog2E));
    for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 4
      for (int i = 0; i < kPanelVectors; ++i) {
        const int64_t at = p * kPanelVectors + i;
        const Vec s = ProgramSteps<Isa>::template get<Vec>(modified, at);
        Vec e = Isa::template exp2<typename Format::Exp2>(Isa::mul(Isa::add(s, shift), to_log2));
        Vec ds = Isa::mul(Isa::load(slope + at * Isa::kLanes), e);
        if (keys[p].masked) {
          const typename Isa::Mask seen = Isa::mask(keys[p].word[r], i);
          e = Isa::keep(seen, e);
          ds = Isa::keep(seen, ds);
        }
        Isa::store(weight + at * Isa::kLanes, e);
        Isa::store(slope + at * Isa::kLanes, ds);
      }
    }
  }

  // slope *= derivative, and 0 where the row does not see the key, whatever the derivative is
  // there.
  static void through(ValueSource derivative, int r, const Keys* keys, int panels, float* slope) {
    for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 4
      for (int i = 0; i < kPanelVectors; ++i) {
        const int64_t at = p * kPanelVectors + i;
        float* here = slope + at * Isa::kLanes;
        Vec ds = Isa::mul(Isa::load(here), ProgramSteps<Isa>::template get<Vec>(derivative, at));
        if (keys[p].masked) ds = Isa::keep(Isa::mask(keys[p].word[r], i), ds);
        Isa::store(here, ds);
      }
    }
  }

  // Writes a sub-panel's rows as words to `out`, and to `strip` where that is wanted.
  static void store(const float* from, int64_t stride, uint32_t* out, uint32_t* strip) {
    Vec rows[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        rows[r][j] = Isa::load(from + r * stride + j * Isa::kLanes);
      }
      if (strip != nullptr) {
        Format::template store_probabilities<kVectors>(strip + r * L::kStripStride, rows[r]);
      }
    }
    Format::template store_rows<kRows, kVectors>(out, rows);
  }
};

}  // namespace
}  // namespace torchyard

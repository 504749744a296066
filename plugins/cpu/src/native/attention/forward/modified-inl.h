// Softmax of scores that a program has modified.
//
// Row by row: relative to the reference that the row has, if any, and where its weights leave the
// safe range, or none of that was defined (scores of NaN or +inf), again relative to the true
// maximum. Scores stay in natural units until the reference is subtracted, so that scores near
// float32's limits stay finite.
#pragma once

#include <cstdint>

#include "attention/forward/softmax-inl.h"
#include "attention/tile/score-inl.h"

namespace torchyard {
namespace {

template <class Format, int kRows>
struct Modified {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using L = Layout<Format>;
  using Keys = TilePanel<kRows>;
  using Plain = Softmax<Format, kRows>;

  // As Softmax::exact, with `scale` in natural units; so are then the tile's references. They are
  // the greatest scores, NaN included, where `greatest` asks for that.
  static TORCHYARD_NOINLINE void run(const L& layout, const Tile<Format>& tile,
                                     ScoreTile<Format>& program, float scale, int64_t first_row,
                                     const uint32_t* const* packed_keys, const Keys* keys,
                                     int panels, uint32_t* probabilities, float* weight,
                                     float* buffer, bool greatest) {
    const int64_t stride = panels * kPanelKeys;
    for (int p = 0; p < panels; ++p) {
      Plain::scores(layout, tile, scale, packed_keys[p], keys[p], buffer + p * kPanelKeys, stride);
    }
    program.begin(first_row, keys, panels);
    for (int r = static_cast<int>(program.live()); r < kRows; ++r) {
      clear_row(r, panels, probabilities, weight);
    }
    for (int r = 0; r < kRows && r < program.live(); ++r) {
      const ValueSource result = program.apply(r, buffer + r * stride, keys);
      float* row_weight = weight + r * Isa::kLanes;
      const float before = tile.reference[r];
      if (before > kMinusInfinity && !program.rising && !greatest) {
        exponentiate(before, r, result, keys, panels, probabilities, weight);
        if (!Isa::any_not_below(Isa::load(row_weight), kOptimisticLimit)) continue;
        Isa::store(row_weight, Isa::zero());
      }
      const float found = largest(r, result, keys, panels);
      program.rising = before > kMinusInfinity && found > before + kRise;
      if (found > before) {
        tile.reference[r] = found;
        Plain::rescale(layout, tile, r, (before - found) * static_cast<float>(kLog2E));
      }
      exponentiate(tile.reference[r], r, result, keys, panels, probabilities, weight);
      if (greatest && Isa::any_not_below(Isa::load(row_weight), kOptimisticLimit)) {
        mark_nan(tile, r, result, keys, panels);
      }
    }
  }

 private:
  // Gives a row that does not exist, and so has no values of the program, weights of 0.
  static void clear_row(int r, int panels, uint32_t* probabilities, float* weight) {
    Vec none[Plain::kVectors];
    for (int j = 0; j < Plain::kVectors; ++j) none[j] = Isa::zero();
    for (int sub = 0; sub < panels * L::kSubPanels; ++sub) {
      Plain::finish_row(none, r, sub * L::kTileKeys, probabilities, weight);
    }
  }

  // About what takes a row's weights out of the safe range.
  static constexpr float kRise = 20.0f;

  // As Softmax::mark_nan.
  static TORCHYARD_NOINLINE void mark_nan(const Tile<Format>& tile, int r, ValueSource scores,
                                          const Keys* keys, int panels) {
    for (int p = 0; p < panels; ++p) {
      for (int i = 0; i < kPanelKeys / Isa::kLanes; ++i) {
        const Vec s =
            ProgramSteps<Isa>::template get<Vec>(scores, p * (kPanelKeys / Isa::kLanes) + i);
        float lanes[Isa::kLanes];
        Isa::store(lanes, keys[p].masked ? Isa::keep(Isa::mask(keys[p].word[r], i), s) : s);
        Plain::mark_nan(tile, r, lanes, Isa::kLanes);
      }
    }
  }

  // The largest visible score of a row, NaN not counted.
  static float largest(int r, ValueSource scores, const Keys* keys, int panels) {
    const Vec invisible = Isa::set1(kMinusInfinity);
    Vec best = invisible;
    for (int p = 0; p < panels; ++p) {
      for (int i = 0; i < kPanelKeys / Isa::kLanes; ++i) {
        Vec s = ProgramSteps<Isa>::template get<Vec>(scores, p * (kPanelKeys / Isa::kLanes) + i);
        if (keys[p].masked) s = Isa::select(Isa::mask(keys[p].word[r], i), s, invisible);
        best = Isa::max_ignoring_nan(s, best);
      }
    }
    return Isa::largest(best);
  }

  // Adds a row's weights relative to `reference` and writes its probabilities.
  static void exponentiate(float reference, int r, ValueSource scores, const Keys* keys, int panels,
                           uint32_t* probabilities, float* weight) {
    const Vec subtracted = Isa::set1(reference == kMinusInfinity ? 0.0f : reference);
    const Vec to_log2 = Isa::set1(static_cast<float>(kLog2E));
    for (int p = 0; p < panels; ++p) {
      for (int sub = 0; sub < L::kSubPanels; ++sub) {
        Vec e[Plain::kVectors];
#pragma GCC unroll 4
        for (int j = 0; j < Plain::kVectors; ++j) {
          const int i = sub * Plain::kVectors + j;
          const Vec s =
              ProgramSteps<Isa>::template get<Vec>(scores, p * (kPanelKeys / Isa::kLanes) + i);
          e[j] =
              Isa::template exp2<typename Format::Exp2>(Isa::mul(Isa::sub(s, subtracted), to_log2));
          if (keys[p].masked) e[j] = Isa::keep(Isa::mask(keys[p].word[r], i), e[j]);
        }
        Plain::finish_row(e, r, p * kPanelKeys + sub * L::kTileKeys, probabilities, weight);
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

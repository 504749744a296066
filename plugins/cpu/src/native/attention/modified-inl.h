// Softmax of scores that a program has modified.
//
// Modified scores may be anything: there is no optimistic reference, the strip's true maxima are
// taken. They stay in natural units until the reference is subtracted, so that scores near
// float32's limits stay finite.
#pragma once

#include <cstdint>

#include "attention/score-inl.h"
#include "attention/softmax-inl.h"

namespace torchyard {
namespace {

template <class Format, int kRows>
struct Modified {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using L = Layout<Format>;
  using Keys = TilePanel<kRows>;
  using Plain = Softmax<Format, kRows>;

  // As Softmax::exact, with `scale` in natural units; so are then the tile's references.
  static TORCHYARD_NOINLINE void run(const L& layout, const Tile<Format>& tile,
                                     ScoreTile<Format>& program, float scale, int64_t first_row,
                                     const uint32_t* const* packed_keys, const Keys* keys,
                                     int panels, uint32_t* probabilities, float* weight,
                                     float* buffer) {
    const int64_t stride = panels * kPanelKeys;
    for (int p = 0; p < panels; ++p) {
      Plain::scores(layout, tile, scale, packed_keys[p], keys[p], buffer + p * kPanelKeys, stride);
    }
    program.begin(first_row, keys, panels);
    for (int r = 0; r < kRows; ++r) {
      float* row = buffer + r * stride;
      const float before = tile.reference[r];
      const float found = modify(program, r, row, keys, panels);
      if (found > before) {
        tile.reference[r] = found;
        Plain::rescale(layout, tile, r, (before - found) * static_cast<float>(kLog2E));
      }
      exponentiate(tile.reference[r], r, row, panels, probabilities, weight);
    }
  }

 private:
  // Replaces a row of raw scores by the modified ones, hidden ones by -inf; returns the largest.
  static float modify(ScoreTile<Format>& program, int r, float* row, const Keys* keys, int panels) {
    const ScoreSource result = program.apply(r, row, keys);
    const Vec invisible = Isa::set1(kMinusInfinity);
    Vec best = invisible;
    for (int p = 0; p < panels; ++p) {
      for (int i = 0; i < kPanelKeys / Isa::kLanes; ++i) {
        const int64_t at = p * (kPanelKeys / Isa::kLanes) + i;
        Vec s = ScoreSteps<Isa>::template get<Vec>(result, at);
        if (keys[p].masked) s = Isa::select(Isa::mask(keys[p].word[r], i), s, invisible);
        best = Isa::max_ignoring_nan(s, best);
        Isa::store(row + at * Isa::kLanes, s);
      }
    }
    return Isa::largest(best);
  }

  static void exponentiate(float reference, int r, const float* row, int panels,
                           uint32_t* probabilities, float* weight) {
    const Vec subtracted = Isa::set1(reference == kMinusInfinity ? 0.0f : reference);
    const Vec to_log2 = Isa::set1(static_cast<float>(kLog2E));
    for (int sub = 0; sub < panels * L::kSubPanels; ++sub) {
      Vec e[Plain::kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < Plain::kVectors; ++j) {
        const Vec s = Isa::load(row + sub * L::kTileKeys + j * Isa::kLanes);
        e[j] =
            Isa::template exp2<typename Format::Exp2>(Isa::mul(Isa::sub(s, subtracted), to_log2));
      }
      Plain::finish_row(e, r, sub, probabilities, weight);
    }
  }
};

}  // namespace
}  // namespace torchyard

// What one row's pairs add to the gradients of captured tensors.
#pragma once

#include <cstdint>

#include "attention/tile/score-inl.h"

namespace torchyard {
namespace {

template <class Format, int kRows>
struct CapturedSums {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using Keys = TilePanel<kRows>;
  static constexpr int kPanelVectors = kPanelKeys / Isa::kLanes;

  // Adds slope * weight of row `r`, whose raw scores are at `raw`, at one site. A pair that the row
  // does not see adds nothing, whatever its weight is.
  static TORCHYARD_NOINLINE void add(const ScoreGradient& gradient, const ScoreSite& site,
                                     const ScoreTile<Format>& program, int64_t r, const float* raw,
                                     const float* slope, const Keys* keys, int panels, void* sum) {
    const char* scores = reinterpret_cast<const char*>(raw);
    const ValueSource weight = program.source(site.weight, r, scores);
    const ValueSource offset = program.source(site.offset, r, scores);
    alignas(64) float terms[Layout<Format>::kStripPanels * kPanelKeys];
    Vec total = Isa::zero();
    for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 4
      for (int i = 0; i < kPanelVectors; ++i) {
        const int64_t at = p * kPanelVectors + i;
        Vec term = Isa::mul(Isa::load(slope + at * Isa::kLanes),
                            ProgramSteps<Isa>::template get<Vec>(weight, at));
        if (keys[p].masked) term = Isa::keep(Isa::mask(keys[p].word[r], i), term);
        Isa::store(terms + at * Isa::kLanes, term);
        total = Isa::add(total, term);
      }
    }
    if (gradient.tensors[site.tensor].shared != 0) {
      add_terms(site, program, offset, terms, Isa::sum(total), panels, static_cast<float*>(sum));
    } else {
      add_terms(site, program, offset, terms, Isa::sum(total), panels, static_cast<double*>(sum));
    }
  }

 private:
  template <class T>
  static void add_terms(const ScoreSite& site, const ScoreTile<Format>& program, ValueSource offset,
                        const float* terms, float total, int panels, T* sum) {
    if (site.form == SiteForm::kScatter) {
      const int64_t count = panels * kPanelKeys;
      if (site.extra != 0) {
        scatter(reinterpret_cast<const int64_t*>(offset.at), terms, count, sum);
      } else {
        scatter(reinterpret_cast<const int32_t*>(offset.at), terms, count, sum);
      }
      return;
    }
    int64_t base;
    __builtin_memcpy(&base, offset.at, sizeof(base));
    if (site.form == SiteForm::kOne) {
      sum[base] += total;
      return;
    }
    for (int p = 0; p < panels; ++p) {
      const int64_t first = base + site.extra * program.first_key(p);
      line(terms + p * kPanelKeys, program.key_count(p), site.extra, sum + first);
    }
  }

  // A hidden pair's index that is out of range became 0, and its term is 0.
  template <class Offset, class T>
  static void scatter(const Offset* offset, const float* terms, int64_t count, T* sum) {
    for (int64_t i = 0; i < count; ++i) sum[offset[i]] += terms[i];
  }

  template <class T>
  static void line(const float* terms, int64_t count, int64_t stride, T* sum) {
    if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) sum[i] += terms[i];
    } else if (stride == -1) {
      for (int64_t i = 0; i < count; ++i) sum[-i] += terms[i];
    } else {
      for (int64_t i = 0; i < count; ++i) sum[i * stride] += terms[i];
    }
  }
};

}  // namespace
}  // namespace torchyard

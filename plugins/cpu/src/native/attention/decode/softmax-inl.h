// The softmax of one chunk of keys for the rows of a decode kernel.
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "attention/decode/state-inl.h"
#include "attention/tile/tile-inl.h"
#include "simd/format.h"

namespace torchyard {
namespace {

// Turns scores into probabilities and moves each row's reference to the new maximum.
//
// Raw scores are scaled to units of log2 first. Those that a program has modified stay in natural
// units until the reference is subtracted, so that scores near float32's limits stay finite; so do
// then the references.
template <class Format>
struct DecodeSoftmax {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;

  const ForwardArgs& args;
  uint32_t* probabilities;  // [rows][kPanelKeys] scores, then words
  float* sum;               // [rows][columns]
  int64_t columns;
  float* weight;
  float* reference;

  // Few keys fill few vectors, and each vector costs an exponential. `words` are the rows', or
  // nullptr: every row sees the keys of `present`.
  TORCHYARD_INLINE void soften(const uint64_t* words, uint64_t present, int rows, int keys) {
    constexpr int kVectors = kPanelKeys / Isa::kLanes;
    constexpr int kHalf = kVectors > 2 * Format::kPair ? kVectors / 2 : kVectors;
    constexpr int kFew = kHalf > Format::kPair ? kHalf / 2 : kHalf;
    for (int r = 0; r < rows; ++r) {
      const uint64_t word = words == nullptr ? present : words[r] & present;
      if (args.score != nullptr) {
        row<kVectors, true>(r, word);
      } else if (keys <= kFew * Isa::kLanes) {
        row<kFew, false>(r, word);
      } else if (keys <= kHalf * Isa::kLanes) {
        row<kHalf, false>(r, word);
      } else {
        row<kVectors, false>(r, word);
      }
    }
  }

 private:
  template <int kVectors, bool kModified>
  TORCHYARD_NOINLINE void row(int r, uint64_t word) {
    uint32_t* at = probabilities + r * kPanelKeys;
    const Vec to_log2 = Isa::set1(static_cast<float>(kLog2E));
    const Vec factor = Isa::set1(static_cast<float>(args.scale * kLog2E));
    const Vec hidden = Isa::set1(kMinusInfinity);
    Vec score[kVectors];
    Vec most = hidden;
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      score[j] = Isa::load(at + j * Isa::kLanes);
      if constexpr (!kModified) score[j] = Isa::mul(score[j], factor);
      score[j] = Isa::select(Isa::mask(word, j), score[j], hidden);
      most = Isa::max_ignoring_nan(score[j], most);
    }
    const float found = Isa::largest(most);
    const float old = reference[r];
    if (found > old && old == kMinusInfinity) {
      // Nothing that counts was summed yet.
      reference[r] = found;
    } else if (found > old) {
      Vec fall = Isa::set1(old - found);
      if constexpr (kModified) fall = Isa::mul(fall, to_log2);
      const Vec shrink = Isa::template exp2<typename Format::Exp2>(fall);
      float* own = sum + r * columns;
      for (int64_t j = 0; j < columns; j += Isa::kLanes) {
        Isa::store(own + j, Isa::mul(Isa::load(own + j), shrink));
      }
      weight[r] *= DecodeState<Format>::first_lane(shrink);
      reference[r] = found;
    }
    // A row that has seen nothing has only scores of -inf, or NaN, which must get through.
    const float base = reference[r] == kMinusInfinity ? 0.0f : reference[r];
    const Vec minus_base = Isa::set1(-base);
    Vec total = Isa::zero();
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      score[j] = Isa::add(score[j], minus_base);
      if constexpr (kModified) score[j] = Isa::mul(score[j], to_log2);
      score[j] = Isa::template exp2<typename Format::Exp2>(score[j]);
      total = Isa::add(total, score[j]);
    }
    const float added = Isa::sum(total);
    if (args.max_scores != nullptr && added != added) {
      mark_nan<kModified>(r, word);
    }
    weight[r] += added;
    Format::template store_probabilities<kVectors>(at, score);
  }

  // Makes the reference of a row with a visible score of NaN NaN: that is its greatest score.
  template <bool kModified>
  TORCHYARD_NOINLINE void mark_nan(int r, uint64_t word) {
    const Vec factor = Isa::set1(kModified ? 1.0f : static_cast<float>(args.scale * kLog2E));
    for (int j = 0; j < kPanelKeys / Isa::kLanes; ++j) {
      const uint32_t* at = probabilities + r * kPanelKeys + j * Isa::kLanes;
      float lanes[Isa::kLanes];
      Isa::store(lanes, Isa::keep(Isa::mask(word, j), Isa::mul(Isa::load(at), factor)));
      for (const float score : lanes) {
        if (score != score) reference[r] = score;
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

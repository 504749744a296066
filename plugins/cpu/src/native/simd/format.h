// How a kernel's elements become 32-bit words, and what the product of two words is.
//
// A word holds kPair consecutive elements along the summed dimension: the micro-kernel counts words
// and never looks inside, so the same code multiplies floats and pairs of bfloat16.
#pragma once

#include <cstdint>

#include "base/compiler.h"
#include "simd/element.h"
#include "simd/exp2_polynomial.h"

namespace torchyard {
namespace {

// Words are float32, whatever the inputs are.
template <class IsaT, class ElementT, class PolynomialT>
struct FloatFormat {
  using Isa = IsaT;
  using Element = ElementT;
  using Exp2 = PolynomialT;
  using Vec = typename Isa::Vec;
  static constexpr int kPair = 1;
  static constexpr bool kPairsLines = false;

  static TORCHYARD_INLINE Vec dot(Vec sum, Vec a, Vec b) { return Isa::fma(a, b, sum); }

  // Up to kLanes words from the first `n` elements at `p`.
  static TORCHYARD_INLINE Vec words(const Element* p, int n) { return Isa::load_first(p, n); }

  // One word per element of a row of values; `next` is the following key's row when kPair is 2.
  static TORCHYARD_INLINE Vec value_words(const Element* row, const Element* next, int n) {
    (void)next;
    return Isa::load_first(row, n);
  }

  // Running maximum of the elements' magnitudes, as the bits of a float.
  static TORCHYARD_INLINE Vec magnitude(Vec running, Vec words) {
    return Isa::magnitude_bits_max(running, words);
  }

  // Writes kVectors * kLanes probabilities as words.
  template <int kVectors>
  static TORCHYARD_INLINE void store_probabilities(uint32_t* p, const Vec (&v)[kVectors]) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) Isa::store(p + j * Isa::kLanes, v[j]);
  }

  // Writes rows of kVectors * kLanes floats, one after the other, as words that hold kPair rows
  // each.
  template <int kRows, int kVectors>
  static TORCHYARD_INLINE void store_rows(uint32_t* p, const Vec (&v)[kRows][kVectors]) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        Isa::store(p + (r * kVectors + j) * Isa::kLanes, v[r][j]);
      }
    }
  }

  // Writes kLanes results as elements.
  static TORCHYARD_INLINE void store_output(Element* p, Vec v) {
    Isa::store_first(p, v, Isa::kLanes);
  }

  // The float value of half `half` of a word.
  static TORCHYARD_INLINE float unpack(uint32_t word, int half) {
    (void)half;
    float x;
    __builtin_memcpy(&x, &word, sizeof(x));
    return x;
  }
};

}  // namespace
}  // namespace torchyard

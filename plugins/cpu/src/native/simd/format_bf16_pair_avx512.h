// Words are pairs of bfloat16, multiplied and summed into float32 by vdpbf16ps.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "simd/avx512.h"
#include "simd/format.h"

namespace torchyard {
namespace {

struct Bf16PairFormat {
  using Isa = Avx512;
  using Element = Bf16;
  using Exp2 = Exp2Degree4;
  using Vec = Isa::Vec;
  static constexpr int kPair = 2;
  static constexpr bool kPairsLines = true;

  static TORCHYARD_INLINE Vec dot(Vec sum, Vec a, Vec b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }

  static TORCHYARD_INLINE Vec words(const Element* p, int n) {
    const __mmask32 present = n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(present, p));
  }

  static TORCHYARD_INLINE Vec value_words(const Element* row, const Element* next, int n) {
    const __mmask16 present = n >= 16 ? __mmask16{0xffff} : Isa::first(n);
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(present, row));
    if (next == nullptr) return _mm512_castsi512_ps(low);
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(present, next));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }

  // As value_words for 2 * kLanes elements, in half the instructions, but in an order of its own:
  // that of the elements in which `unpaired` expects sums.
  static TORCHYARD_INLINE void paired_lines(const Element* row, const Element* next, Vec& low,
                                            Vec& high) {
    const __m512i a = _mm512_loadu_si512(row);
    const __m512i b = next == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(next);
    low = _mm512_castsi512_ps(_mm512_unpacklo_epi16(a, b));
    high = _mm512_castsi512_ps(_mm512_unpackhi_epi16(a, b));
  }

  // Brings sums of 2 * kLanes elements into the order of paired_lines.
  static TORCHYARD_INLINE void paired(Vec& low, Vec& high) {
    const Vec first = _mm512_permutex2var_ps(
        low, _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27), high);
    high = _mm512_permutex2var_ps(
        low, _mm512_setr_epi32(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31), high);
    low = first;
  }

  // Brings them back.
  static TORCHYARD_INLINE void unpaired(Vec& low, Vec& high) {
    const Vec first = _mm512_permutex2var_ps(
        low, _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23), high);
    high = _mm512_permutex2var_ps(
        low, _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31), high);
    low = first;
  }

  static TORCHYARD_INLINE Vec magnitude(Vec running, Vec words) {
    const Vec low = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16));
    return Isa::magnitude_bits_max(Isa::magnitude_bits_max(running, words), low);
  }

  template <int kVectors>
  static TORCHYARD_INLINE void store_probabilities(uint32_t* p, const Vec (&v)[kVectors]) {
    static_assert(kVectors % 2 == 0, "two vectors of floats make one of pairs");
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; j += 2) {
      const __m512bh pairs = _mm512_cvtne2ps_pbh(v[j + 1], v[j]);
      _mm512_storeu_si512(p + j / 2 * Isa::kLanes, (__m512i)pairs);
    }
  }

  template <int kRows, int kVectors>
  static TORCHYARD_INLINE void store_rows(uint32_t* p, const Vec (&v)[kRows][kVectors]) {
    static_assert(kRows % 2 == 0, "two rows of floats make one of pairs");
    const __m512i interleave =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
#pragma GCC unroll 3
    for (int r = 0; r < kRows; r += 2) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(v[r + 1][j], v[r][j]);
        _mm512_storeu_si512(p + (r / 2 * kVectors + j) * Isa::kLanes,
                            _mm512_permutexvar_epi16(interleave, both));
      }
    }
  }

  static TORCHYARD_INLINE void store_output(Element* p, Vec v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
  }

  static TORCHYARD_INLINE float unpack(uint32_t word, int half) {
    const uint32_t bits = half == 0 ? word << 16 : word & 0xffff0000u;
    float x;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
  }
};

}  // namespace
}  // namespace torchyard

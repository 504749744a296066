// The same for AVX-512, without and with dot products of bytes.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "quantised/sums-inl.h"
#include "simd/avx512.h"

namespace torchyard {
namespace {

// As Avx2Dot.
struct Avx512Dot {
  using Int = Lanes<Avx512>::Int;
  struct Word {
    __m512i even;
    __m512i odd;
  };

  template <int kBits>
  static TORCHYARD_INLINE Word broadcast(const uint32_t* p) {
    const __m512i x = _mm512_set1_epi32(static_cast<int>(*p));
    if (kBits == 4) return {x, x};
    return {_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8), _mm512_srai_epi16(x, 8)};
  }
  template <int kBits>
  static TORCHYARD_INLINE Int dot(Int total, Int codes, Word word) {
    const __m512i c = (__m512i)codes;
    __m512i sum;
    if (kBits == 4) {
      sum = _mm512_madd_epi16(_mm512_maddubs_epi16(c, word.even), _mm512_set1_epi16(1));
    } else {
      const __m512i even = _mm512_and_si512(c, _mm512_set1_epi16(0xff));
      sum = _mm512_add_epi32(_mm512_madd_epi16(even, word.even),
                             _mm512_madd_epi16(_mm512_srli_epi16(c, 8), word.odd));
    }
    return total + (Int)sum;
  }
};

#if defined(__AVX512VNNI__)
struct VnniDot {
  using Int = Lanes<Avx512>::Int;
  using Word = __m512i;

  template <int kBits>
  static TORCHYARD_INLINE Word broadcast(const uint32_t* p) {
    return _mm512_set1_epi32(static_cast<int>(*p));
  }
  template <int kBits>
  static TORCHYARD_INLINE Int dot(Int total, Int codes, Word word) {
    return (Int)_mm512_dpbusd_epi32((__m512i)total, (__m512i)codes, word);
  }
};
#endif

}  // namespace
}  // namespace torchyard

// The same by the instructions of x86-64.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "quantised/sums-inl.h"
#include "simd/avx2.h"

namespace torchyard {
namespace {

// vpmaddubsw saturates its sums of two products, which only codes of 4 bits keep clear of; those of
// 8 are widened, the even and the odd bytes of a word each to two 16-bit numbers.
struct Avx2Dot {
  using Int = Lanes<Avx2>::Int;
  struct Word {
    __m256i even;  // all four bytes where codes have 4 bits
    __m256i odd;
  };

  template <int kBits>
  static TORCHYARD_INLINE Word broadcast(const uint32_t* p) {
    const __m256i x = _mm256_set1_epi32(static_cast<int>(*p));
    if (kBits == 4) return {x, x};
    return {_mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), _mm256_srai_epi16(x, 8)};
  }
  template <int kBits>
  static TORCHYARD_INLINE Int dot(Int total, Int codes, Word word) {
    const __m256i c = (__m256i)codes;
    __m256i sum;
    if (kBits == 4) {
      sum = _mm256_madd_epi16(_mm256_maddubs_epi16(c, word.even), _mm256_set1_epi16(1));
    } else {
      const __m256i even = _mm256_and_si256(c, _mm256_set1_epi16(0xff));
      sum = _mm256_add_epi32(_mm256_madd_epi16(even, word.even),
                             _mm256_madd_epi16(_mm256_srli_epi16(c, 8), word.odd));
    }
    return total + (Int)sum;
  }
};

}  // namespace
}  // namespace torchyard

// The same with AVX-512's compression. Into registers and stored whole: compressing into memory is
// microcode on some processors, ten times as slow.
#pragma once

#include "simd/avx512.h"
#include "topk/append-inl.h"

namespace torchyard {
namespace {

template <>
struct TopKAny<Avx512> {
  template <class Vec>
  static TORCHYARD_INLINE bool of(Vec truth) {
    return _mm512_test_epi64_mask((__m512i)truth, (__m512i)truth) != 0;
  }
};

template <class Keys>
struct TopKAppend<Avx512, Keys> {
  using Vec = typename Keys::Vec;
  using Key = typename Keys::Key;

  static TORCHYARD_INLINE int64_t run(Key* keys, uint32_t* index, int64_t count, Vec key,
                                      Vec wanted, uint32_t first) {
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return store(keys, index, count, key, wanted,
                 _mm512_add_epi32(step, _mm512_set1_epi32(static_cast<int>(first))));
  }

  static TORCHYARD_INLINE int64_t move(Key* keys, uint32_t* index, int64_t count, int64_t from,
                                       Vec key, Vec wanted) {
    return store(keys, index, count, key, wanted, _mm512_loadu_si512(index + from));
  }

 private:
  static TORCHYARD_INLINE int64_t store(Key* keys, uint32_t* index, int64_t count, Vec key,
                                        Vec wanted, __m512i indices) {
    const __m512i words = (__m512i)key;
    if constexpr (sizeof(Key) == 4) {
      const __mmask16 mask = _mm512_movepi32_mask((__m512i)wanted);
      _mm512_storeu_si512(keys + count, _mm512_maskz_compress_epi32(mask, words));
      _mm512_storeu_si512(index + count, _mm512_maskz_compress_epi32(mask, indices));
      return count + __builtin_popcount(mask);
    } else {
      const __mmask8 mask = _mm512_movepi64_mask((__m512i)wanted);
      _mm512_storeu_si512(keys + count, _mm512_maskz_compress_epi64(mask, words));
      const __m256i low = _mm256_maskz_compress_epi32(mask, _mm512_castsi512_si256(indices));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(index + count), low);
      return count + __builtin_popcount(mask);
    }
  }
};

}  // namespace
}  // namespace torchyard

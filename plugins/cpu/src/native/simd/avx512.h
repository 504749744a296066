// Vector vocabulary for AVX-512 F, BW, DQ and VL. See simd/README.md for the meaning of each name.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "simd/element.h"

namespace torchyard {
namespace {

struct Avx512 {
  using Vec = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;
  // 6 x 4 accumulators + 4 of B + 1 broadcast of A = 29 of 32 registers, and 24 independent chains
  // against the 8 that two ports of latency 4 need.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 4;

  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec set1(float x) { return _mm512_set1_ps(x); }
  static Vec load(const void* p) { return _mm512_loadu_ps(p); }
  static void store(void* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec broadcast_word(const uint32_t* p) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)));
  }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  static Vec sqrt(Vec v) { return _mm512_sqrt_ps(v); }
  // An estimate within 2^-14 and one step of Newton's. Of zeros and infinities the estimate is
  // exact, and the step would not be a number.
  static Vec rsqrt(Vec v) {
    constexpr int kZeroOrInfinite = 0x1e;
    const Vec estimate = _mm512_rsqrt14_ps(v);
    const Vec error = _mm512_fnmadd_ps(mul(v, estimate), estimate, set1(1.0f));
    const Vec refined = fma(error, mul(estimate, set1(0.5f)), estimate);
    return select(_mm512_fpclass_ps_mask(estimate, kZeroOrInfinite), estimate, refined);
  }
  static Vec max_ignoring_nan(Vec maybe_nan, Vec b) { return _mm512_max_ps(maybe_nan, b); }

  static Mask mask(uint64_t bits, int vector) {
    return static_cast<Mask>(bits >> (vector * kLanes));
  }
  static Vec keep(Mask m, Vec v) { return _mm512_maskz_mov_ps(m, v); }
  static Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_mov_ps(no, m, yes); }
  static bool any_not_below(Vec v, float limit) {
    return _mm512_cmp_ps_mask(v, _mm512_set1_ps(limit), _CMP_NLT_UQ) != 0;
  }

  static float sum(Vec v) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  static float largest(Vec v) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }

  // vscalefps multiplies by 2^floor(x) with correct under- and overflow, so the polynomial only has
  // to cover the fraction that vreduceps leaves, and infinities and NaN need no branch.
  template <class Polynomial>
  static Vec exp2(Vec x) {
    constexpr int kFloorNoException = 0x09;
    const Vec fraction = _mm512_reduce_ps(x, kFloorNoException);
    return _mm512_scalef_ps(Polynomial::template evaluate<Avx512>(fraction), x);
  }

  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static Vec load_first(const float* p, int n) {
    return n >= kLanes ? load(p) : _mm512_maskz_loadu_ps(first(n), p);
  }
  static Vec load_first(const Bf16* p, int n) {
    const __m256i raw = n >= kLanes ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
                                    : _mm256_maskz_loadu_epi16(first(n), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
  }
  static Vec load_first(const F16* p, int n) {
    return _mm512_cvtph_ps(n >= kLanes ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
                                       : _mm256_maskz_loadu_epi16(first(n), p));
  }
  static void store_first(float* p, Vec v, int n) {
    if (n >= kLanes) {
      store(p, v);
    } else {
      _mm512_mask_storeu_ps(p, first(n), v);
    }
  }
  static void store_first(Bf16* p, Vec v, int n) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(kBf16HalfMinusOne)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i chosen =
        _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(static_cast<int>(kQuietNan)));
    const __m256i narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
    _mm256_mask_storeu_epi16(p, n >= kLanes ? __mmask16{0xffff} : first(n), narrow);
  }
  static void store_first(F16* p, Vec v, int n) {
    const __m256i narrow = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (n >= kLanes) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow);
    } else {
      _mm256_mask_storeu_epi16(p, first(n), narrow);
    }
  }

  static Vec magnitude_bits_max(Vec running, Vec words) {
    const __m512i magnitude =
        _mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32(0x7fffffff));
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(running), magnitude));
  }
  static uint32_t largest_bits(Vec v) { return _mm512_reduce_max_epu32(_mm512_castps_si512(v)); }

  // Lane i of the result is the sum of v[i].
  static Vec lane_sums(const Vec (&v)[kLanes]) {
    Vec halves[8];
    Vec quarters[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      halves[i] = add(_mm512_shuffle_f32x4(v[i], v[i + 4], 0x44),
                      _mm512_shuffle_f32x4(v[i], v[i + 4], 0xee));
      halves[i + 4] = add(_mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0x44),
                          _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0xee));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      quarters[i] = add(_mm512_shuffle_f32x4(halves[i], halves[i + 4], 0x88),
                        _mm512_shuffle_f32x4(halves[i], halves[i + 4], 0xdd));
    }
    const Vec low = add(_mm512_unpacklo_ps(quarters[0], quarters[1]),
                        _mm512_unpackhi_ps(quarters[0], quarters[1]));
    const Vec high = add(_mm512_unpacklo_ps(quarters[2], quarters[3]),
                         _mm512_unpackhi_ps(quarters[2], quarters[3]));
    return add(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xee));
  }

  // Transposes a 16 x 16 matrix of 32-bit words in place.
  static void transpose(Vec (&row)[kLanes]) {
    __m512i pairs[16];
    __m512i quads[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      const __m512i a = _mm512_castps_si512(row[i]);
      const __m512i b = _mm512_castps_si512(row[i + 1]);
      pairs[i] = _mm512_unpacklo_epi32(a, b);
      pairs[i + 1] = _mm512_unpackhi_epi32(a, b);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
      quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
      quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
      quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    // quads[4 g + c] holds, in 128-bit lane l, column 4 l + c of the rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const __m512i low01 = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0x88);
      const __m512i low23 = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0x88);
      const __m512i high01 = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0xdd);
      const __m512i high23 = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0xdd);
      row[c] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(low01, low23, 0x88));
      row[4 + c] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(high01, high23, 0x88));
      row[8 + c] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(low01, low23, 0xdd));
      row[12 + c] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(high01, high23, 0xdd));
    }
  }
};

}  // namespace
}  // namespace torchyard

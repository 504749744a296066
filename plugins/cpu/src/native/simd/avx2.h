// Vector vocabulary for AVX2, FMA and F16C. See simd/README.md for the meaning of each name.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "simd/element.h"

namespace torchyard {
namespace {

struct Avx2 {
  using Vec = __m256;
  using Mask = __m256;
  static constexpr int kLanes = 8;
  // 6 x 2 accumulators + 2 of B + 1 broadcast of A = 15 of 16 registers.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 2;

  static Vec zero() { return _mm256_setzero_ps(); }
  static Vec set1(float x) { return _mm256_set1_ps(x); }
  static Vec load(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
  static void store(void* p, Vec v) { _mm256_storeu_ps(static_cast<float*>(p), v); }
  static Vec broadcast_word(const uint32_t* p) {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*p)));
  }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  static Vec sqrt(Vec v) { return _mm256_sqrt_ps(v); }
  static Vec rsqrt(Vec v) { return set1(1.0f) / sqrt(v); }
  static Vec max_ignoring_nan(Vec maybe_nan, Vec b) { return _mm256_max_ps(maybe_nan, b); }

  static Mask mask(uint64_t bits, int vector) {
    const __m256i lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i byte = _mm256_set1_epi32(static_cast<int>((bits >> (vector * kLanes)) & 0xff));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(byte, lane_bit), lane_bit));
  }
  static Vec keep(Mask m, Vec v) { return _mm256_and_ps(m, v); }
  static Vec select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m); }
  static bool any_not_below(Vec v, float limit) {
    return _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(limit), _CMP_NLT_UQ)) != 0;
  }

  static float sum(Vec v) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  static float largest(Vec v) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }

  // Operand order matters: vminps and vmaxps return the second operand when either is NaN.
  template <class Polynomial>
  static Vec exp2(Vec x) {
    const Vec clamped =
        _mm256_max_ps(_mm256_set1_ps(-126.0f), _mm256_min_ps(_mm256_set1_ps(127.999f), x));
    const Vec whole = _mm256_floor_ps(clamped);
    const Vec value = Polynomial::template evaluate<Avx2>(_mm256_sub_ps(clamped, whole));
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
    const Vec scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), exponent));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_LT_OQ), scaled);
  }

  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vec load_first(const float* p, int n) {
    return n >= kLanes ? load(p) : _mm256_maskload_ps(p, first(n));
  }
  static __m128i load_halves(const void* p, int n) {
    if (n >= kLanes) return _mm_loadu_si128(static_cast<const __m128i*>(p));
    uint16_t copy[kLanes] = {};
    std::memcpy(copy, p, static_cast<size_t>(n) * sizeof(copy[0]));
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(copy));
  }
  static Vec load_first(const Bf16* p, int n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(p, n)), 16));
  }
  static Vec load_first(const F16* p, int n) { return _mm256_cvtph_ps(load_halves(p, n)); }
  static void store_first(float* p, Vec v, int n) {
    if (n >= kLanes) {
      store(p, v);
    } else {
      _mm256_maskstore_ps(p, first(n), v);
    }
  }
  static void store_first(Bf16* p, Vec v, int n) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(kBf16HalfMinusOne)));
    const Vec nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    const __m256i chosen = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(rounded),
                         _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kQuietNan))), nan));
    const __m256i high = _mm256_srli_epi32(chosen, 16);
    store_halves(
        p, _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)), n);
  }
  static void store_first(F16* p, Vec v, int n) {
    store_halves(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
  }
  static void store_halves(void* p, __m128i halves, int n) {
    uint16_t copy[kLanes];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(copy), halves);
    std::memcpy(p, copy, static_cast<size_t>(n >= kLanes ? kLanes : n) * sizeof(copy[0]));
  }

  static Vec magnitude_bits_max(Vec running, Vec words) {
    const __m256i magnitude =
        _mm256_and_si256(_mm256_castps_si256(words), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(running), magnitude));
  }
  static uint32_t largest_bits(Vec v) {
    uint32_t lane[kLanes];
    std::memcpy(lane, &v, sizeof(v));
    uint32_t best = 0;
    for (const uint32_t bits : lane) best = bits > best ? bits : best;
    return best;
  }

  // Lane i of the result is the sum of v[i].
  static Vec lane_sums(const Vec (&v)[kLanes]) {
    Vec halves[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      halves[i] = add(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20),
                      _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
    }
    const Vec low =
        add(_mm256_unpacklo_ps(halves[0], halves[1]), _mm256_unpackhi_ps(halves[0], halves[1]));
    const Vec high =
        add(_mm256_unpacklo_ps(halves[2], halves[3]), _mm256_unpackhi_ps(halves[2], halves[3]));
    return add(_mm256_shuffle_ps(low, high, 0x44), _mm256_shuffle_ps(low, high, 0xee));
  }

  // Transposes an 8 x 8 matrix of 32-bit words in place.
  static void transpose(Vec (&row)[kLanes]) {
    Vec pairs[8];
    Vec quads[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
      quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
      quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
      quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      row[c] = _mm256_permute2f128_ps(quads[c], quads[4 + c], 0x20);
      row[4 + c] = _mm256_permute2f128_ps(quads[c], quads[4 + c], 0x31);
    }
  }
};

}  // namespace
}  // namespace torchyard

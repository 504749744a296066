// Vector vocabulary for Advanced SIMD of 64-bit Arm. See simd/README.md for the meaning of each
// name.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "simd/element.h"

namespace torchyard {
namespace {

struct Neon {
  using Vec = float32x4_t;
  using Mask = uint32x4_t;
  static constexpr int kLanes = 4;
  // 6 x 4 accumulators + 4 of B + 1 broadcast of A = 29 of 32 registers, and 24 independent chains
  // against the 16 that four pipes of latency 4 need.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 4;

  static Vec zero() { return vdupq_n_f32(0.0f); }
  static Vec set1(float x) { return vdupq_n_f32(x); }
  // Through bytes: pointers are aligned to elements, and a float's may point to words.
  static Vec load(const void* p) {
    return vreinterpretq_f32_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
  }
  static void store(void* p, Vec v) { vst1q_u8(static_cast<uint8_t*>(p), vreinterpretq_u8_f32(v)); }
  static Vec broadcast_word(const uint32_t* p) { return vreinterpretq_f32_u32(vld1q_dup_u32(p)); }
  static Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
  static Vec sub(Vec a, Vec b) { return vsubq_f32(a, b); }
  static Vec mul(Vec a, Vec b) { return vmulq_f32(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
  static Vec sqrt(Vec v) { return vsqrtq_f32(v); }
  static Vec rsqrt(Vec v) { return set1(1.0f) / sqrt(v); }
  // Not vmaxnmq: that one lets a signalling NaN through.
  static Vec max_ignoring_nan(Vec maybe_nan, Vec b) {
    return vbslq_f32(vcgtq_f32(maybe_nan, b), maybe_nan, b);
  }

  static Mask mask(uint64_t bits, int vector) {
    const uint32_t lane_bits[kLanes] = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32(static_cast<uint32_t>(bits >> (vector * kLanes))),
                     vld1q_u32(lane_bits));
  }
  static Vec keep(Mask m, Vec v) {
    return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(v)));
  }
  static Vec select(Mask m, Vec yes, Vec no) { return vbslq_f32(m, yes, no); }
  static bool any_not_below(Vec v, float limit) {
    return vminvq_u32(vcltq_f32(v, vdupq_n_f32(limit))) == 0;
  }

  static float sum(Vec v) { return vaddvq_f32(v); }
  static float largest(Vec v) { return vmaxvq_f32(v); }

  // Minimum, maximum and floor keep NaN; its conversion to an integer is 0, which moves nothing.
  template <class Polynomial>
  static Vec exp2(Vec x) {
    const Vec clamped = vmaxq_f32(vminq_f32(x, set1(127.999f)), set1(-126.0f));
    const Vec whole = vrndmq_f32(clamped);
    const Vec value = Polynomial::template evaluate<Neon>(vsubq_f32(clamped, whole));
    const int32x4_t exponent = vshlq_n_s32(vcvtq_s32_f32(whole), 23);
    const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(value), exponent);
    const Mask vanishes = vcltq_f32(x, set1(-126.0f));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(scaled), vanishes));
  }

  static Vec load_first(const float* p, int n) {
    if (n >= kLanes) return vld1q_f32(p);
    float copy[kLanes] = {};
    std::memcpy(copy, p, static_cast<size_t>(n) * sizeof(float));
    return vld1q_f32(copy);
  }
  static Vec load_first(const Bf16* p, int n) {
    return vreinterpretq_f32_u32(vshll_n_u16(first_halves(p, n), 16));
  }
  static Vec load_first(const F16* p, int n) {
    return vcvt_f32_f16(vreinterpret_f16_u16(first_halves(p, n)));
  }
  static void store_first(float* p, Vec v, int n) {
    if (n >= kLanes) {
      vst1q_f32(p, v);
    } else {
      float copy[kLanes];
      vst1q_f32(copy, v);
      std::memcpy(p, copy, static_cast<size_t>(n) * sizeof(float));
    }
  }
  static void store_first(Bf16* p, Vec v, int n) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(kBf16HalfMinusOne)));
    const uint32x4_t chosen = vbslq_u32(vceqq_f32(v, v), rounded, vdupq_n_u32(kQuietNan));
    store_first_halves(p, vshrn_n_u32(chosen, 16), n);
  }

  static void store_first(F16* p, Vec v, int n) {
    store_first_halves(p, vreinterpret_u16_f16(vcvt_f16_f32(v)), n);
  }

  // The first `n` elements of 16 bits, 0 after them.
  template <class Element>
  static uint16x4_t first_halves(const Element* p, int n) {
    uint16_t copy[kLanes] = {};
    if (n >= kLanes) {
      std::memcpy(copy, p, sizeof(copy));
    } else {
      std::memcpy(copy, p, static_cast<size_t>(n) * sizeof(uint16_t));
    }
    return vld1_u16(copy);
  }
  template <class Element>
  static void store_first_halves(Element* p, uint16x4_t halves, int n) {
    uint16_t copy[kLanes];
    vst1_u16(copy, halves);
    if (n >= kLanes) {
      std::memcpy(p, copy, sizeof(copy));
    } else {
      std::memcpy(p, copy, static_cast<size_t>(n) * sizeof(uint16_t));
    }
  }

  static Vec magnitude_bits_max(Vec running, Vec words) {
    const uint32x4_t magnitude = vandq_u32(vreinterpretq_u32_f32(words), vdupq_n_u32(0x7fffffff));
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(running), magnitude));
  }
  static uint32_t largest_bits(Vec v) { return vmaxvq_u32(vreinterpretq_u32_f32(v)); }

  // Lane i of the result is the sum of v[i].
  static Vec lane_sums(const Vec (&v)[kLanes]) {
    return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
  }

  // Transposes a 4 x 4 matrix of 32-bit words in place.
  static void transpose(Vec (&row)[kLanes]) {
    const float64x2_t even01 = vreinterpretq_f64_f32(vtrn1q_f32(row[0], row[1]));
    const float64x2_t odd01 = vreinterpretq_f64_f32(vtrn2q_f32(row[0], row[1]));
    const float64x2_t even23 = vreinterpretq_f64_f32(vtrn1q_f32(row[2], row[3]));
    const float64x2_t odd23 = vreinterpretq_f64_f32(vtrn2q_f32(row[2], row[3]));
    row[0] = vreinterpretq_f32_f64(vtrn1q_f64(even01, even23));
    row[1] = vreinterpretq_f32_f64(vtrn1q_f64(odd01, odd23));
    row[2] = vreinterpretq_f32_f64(vtrn2q_f64(even01, even23));
    row[3] = vreinterpretq_f32_f64(vtrn2q_f64(odd01, odd23));
  }
};

}  // namespace
}  // namespace torchyard

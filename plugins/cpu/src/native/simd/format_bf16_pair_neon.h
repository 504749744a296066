// Words are pairs of bfloat16, multiplied and summed into float32 by bfdot.
//
// bfdot rounds its two sums to odd instead of to nearest and flushes denormals: off by a unit in
// float32's last place, where what it multiplies has 16 bits less.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "simd/format.h"
#include "simd/neon.h"

namespace torchyard {
namespace {

struct NeonBf16PairFormat {
  using Isa = Neon;
  using Element = Bf16;
  using Exp2 = Exp2Degree4;
  using Vec = Isa::Vec;
  static constexpr int kPair = 2;
  static constexpr bool kPairsLines = false;

  static TORCHYARD_INLINE Vec dot(Vec sum, Vec a, Vec b) {
    return vbfdotq_f32(sum, vreinterpretq_bf16_f32(a), vreinterpretq_bf16_f32(b));
  }

  static TORCHYARD_INLINE Vec words(const Element* p, int n) {
    if (n >= 2 * Isa::kLanes) return Isa::load(p);
    Element copy[2 * Isa::kLanes] = {};
    std::memcpy(copy, p, static_cast<size_t>(n) * sizeof(Element));
    return Isa::load(copy);
  }

  static TORCHYARD_INLINE Vec value_words(const Element* row, const Element* next, int n) {
    const uint16x4_t high = next == nullptr ? vdup_n_u16(0) : Isa::first_halves(next, n);
    return interleave(Isa::first_halves(row, n), high);
  }

  static TORCHYARD_INLINE Vec magnitude(Vec running, Vec words) {
    const Vec low = vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(words), 16));
    return Isa::magnitude_bits_max(Isa::magnitude_bits_max(running, words), low);
  }

  template <int kVectors>
  static TORCHYARD_INLINE void store_probabilities(uint32_t* p, const Vec (&v)[kVectors]) {
    static_assert(kVectors % 2 == 0, "two vectors of floats make one of pairs");
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; j += 2) {
      const bfloat16x8_t pairs = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(v[j]), v[j + 1]);
      Isa::store(p + j / 2 * Isa::kLanes, vreinterpretq_f32_bf16(pairs));
    }
  }

  template <int kRows, int kVectors>
  static TORCHYARD_INLINE void store_rows(uint32_t* p, const Vec (&v)[kRows][kVectors]) {
    static_assert(kRows % 2 == 0, "two rows of floats make one of pairs");
#pragma GCC unroll 3
    for (int r = 0; r < kRows; r += 2) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        Isa::store(p + (r / 2 * kVectors + j) * Isa::kLanes,
                   interleave(rounded(v[r][j]), rounded(v[r + 1][j])));
      }
    }
  }

  static TORCHYARD_INLINE void store_output(Element* p, Vec v) {
    Isa::store_first_halves(p, rounded(v), Isa::kLanes);
  }

  static TORCHYARD_INLINE float unpack(uint32_t word, int half) {
    const uint32_t bits = half == 0 ? word << 16 : word & 0xffff0000u;
    float x;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
  }

 private:
  static TORCHYARD_INLINE uint16x4_t rounded(Vec v) {
    return vreinterpret_u16_bf16(vcvt_bf16_f32(v));
  }
  static TORCHYARD_INLINE Vec interleave(uint16x4_t low, uint16x4_t high) {
    return vreinterpretq_f32_u16(vcombine_u16(vzip1_u16(low, high), vzip2_u16(low, high)));
  }
};

}  // namespace
}  // namespace torchyard

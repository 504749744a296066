// Vector vocabulary in portable C++: four floats that the compiler maps to whatever its baseline
// has (SSE2, NEON, or plain registers). See simd/README.md for the meaning of each name.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/element.h"

namespace torchyard {
namespace {

struct Scalar {
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 2;
  typedef float Vec __attribute__((vector_size(16)));
  typedef int32_t Mask __attribute__((vector_size(16)));
  typedef uint32_t Bits __attribute__((vector_size(16)));

  static Vec zero() { return Vec{0.0f, 0.0f, 0.0f, 0.0f}; }
  static Vec set1(float x) { return Vec{x, x, x, x}; }
  static Vec load(const void* p) {
    Vec v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static void store(void* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }
  static Vec broadcast_word(const uint32_t* p) {
    float x;
    std::memcpy(&x, p, sizeof(x));
    return set1(x);
  }
  static Vec add(Vec a, Vec b) { return a + b; }
  static Vec sub(Vec a, Vec b) { return a - b; }
  static Vec mul(Vec a, Vec b) { return a * b; }
  static Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
  static Vec sqrt(Vec v) {
    for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
    return v;
  }
  static Vec rsqrt(Vec v) { return set1(1.0f) / sqrt(v); }
  static Vec max_ignoring_nan(Vec maybe_nan, Vec b) { return maybe_nan > b ? maybe_nan : b; }

  static Mask mask(uint64_t bits, int vector) {
    const int32_t nibble = static_cast<int32_t>((bits >> (vector * kLanes)) & 0xf);
    const Mask lane_bit = {1, 2, 4, 8};
    return (Mask{nibble, nibble, nibble, nibble} & lane_bit) == lane_bit;
  }
  static Vec keep(Mask m, Vec v) { return m ? v : zero(); }
  static Vec select(Mask m, Vec yes, Vec no) { return m ? yes : no; }
  static bool any_not_below(Vec v, float limit) {
    for (int i = 0; i < kLanes; ++i) {
      if (!(v[i] < limit)) return true;
    }
    return false;
  }

  static float sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  static float largest(Vec v) {
    float best = v[0];
    for (int i = 1; i < kLanes; ++i) best = v[i] > best ? v[i] : best;
    return best;
  }

  // The conversion to an integer is undefined for NaN and for what an int cannot hold, so NaN is
  // replaced before it and put back after the scaling.
  template <class Polynomial>
  static Vec exp2(Vec x) {
    const Vec low = set1(-126.0f);
    const Vec high = set1(127.999f);
    const Vec from_below = x > low ? x : low;
    const Vec clamped = from_below < high ? from_below : high;
    const Mask toward_zero = __builtin_convertvector(clamped, Mask);
    const Vec truncated = __builtin_convertvector(toward_zero, Vec);
    const Mask whole = toward_zero + (truncated > clamped);  // a true comparison is -1
    const Vec fraction = clamped - __builtin_convertvector(whole, Vec);
    const Bits value = as_bits(Polynomial::template evaluate<Scalar>(fraction));
    const Bits scaled = value + (__builtin_convertvector(whole, Bits) << 23);
    const Vec result = x < low ? zero() : as_floats(scaled);
    return x == x ? result : x;
  }

  static Vec load_first(const float* p, int n) {
    Vec v = zero();
    std::memcpy(&v, p, sizeof(float) * static_cast<size_t>(n < kLanes ? n : kLanes));
    return v;
  }
  static Vec load_first(const Bf16* p, int n) {
    Bf16 copy[kLanes] = {};
    std::memcpy(copy, p, sizeof(Bf16) * static_cast<size_t>(n < kLanes ? n : kLanes));
    Bits bits;
    for (int i = 0; i < kLanes; ++i) bits[i] = static_cast<uint32_t>(copy[i].bits) << 16;
    return as_floats(bits);
  }
  // By integers, and by sums that are exact whether or not the processor keeps subnormal floats.
  static Vec load_first(const F16* p, int n) {
    F16 copy[kLanes] = {};
    std::memcpy(copy, p, sizeof(F16) * static_cast<size_t>(n < kLanes ? n : kLanes));
    Bits half;
    for (int i = 0; i < kLanes; ++i) half[i] = copy[i].bits;
    const Bits magnitude = (half & 0x7fffu) << 13;
    const Bits exponent = magnitude & 0x0f800000u;
    // The exponent's bias grows by 112; that of infinity and NaN once more.
    const Bits normal =
        magnitude + (exponent == 0x0f800000u ? Bits{} + 0x70000000u : Bits{} + 0x38000000u);
    const Bits tiny = as_bits(as_floats(magnitude + 0x38800000u) - set1(0x1p-14f));
    return as_floats((exponent == 0u ? tiny : normal) | ((half & 0x8000u) << 16));
  }
  static void store_first(float* p, Vec v, int n) {
    std::memcpy(p, &v, sizeof(float) * static_cast<size_t>(n < kLanes ? n : kLanes));
  }
  static void store_first(Bf16* p, Vec v, int n) {
    const Bits bits = as_bits(v);
    Bf16 copy[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t rounded = bits[i] + kBf16HalfMinusOne + ((bits[i] >> 16) & 1u);
      copy[i].bits = static_cast<uint16_t>((v[i] == v[i] ? rounded : kQuietNan) >> 16);
    }
    std::memcpy(p, copy, sizeof(Bf16) * static_cast<size_t>(n < kLanes ? n : kLanes));
  }
  static void store_first(F16* p, Vec v, int n) {
    const Bits bits = as_bits(v);
    const Bits magnitude = bits & 0x7fffffffu;
    // What rounds to 65536 carries into infinity's exponent by itself.
    const Bits rounded = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    const Bits bounded = rounded < 0x7c00u ? rounded : Bits{} + 0x7c00u;
    // Floats of 1/2 and more are 2^-24 apart, as float16's subnormals are: the sum rounds to them.
    const Bits tiny = as_bits(as_floats(magnitude) + set1(0.5f)) - 0x3f000000u;
    const Bits number = magnitude < 0x38800000u ? tiny : bounded;
    const Bits nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    const Bits half = (magnitude > kInfinityBits ? nan : number) | ((bits >> 16) & 0x8000u);
    F16 copy[kLanes];
    for (int i = 0; i < kLanes; ++i) copy[i].bits = static_cast<uint16_t>(half[i]);
    std::memcpy(p, copy, sizeof(F16) * static_cast<size_t>(n < kLanes ? n : kLanes));
  }

  static Vec magnitude_bits_max(Vec running, Vec words) {
    const Bits magnitude = as_bits(words) & 0x7fffffffu;
    const Bits best = as_bits(running);
    return as_floats(magnitude > best ? magnitude : best);
  }
  static uint32_t largest_bits(Vec v) {
    const Bits bits = as_bits(v);
    uint32_t best = 0;
    for (int i = 0; i < kLanes; ++i) best = bits[i] > best ? bits[i] : best;
    return best;
  }

  static Vec lane_sums(const Vec (&v)[kLanes]) {
    return Vec{sum(v[0]), sum(v[1]), sum(v[2]), sum(v[3])};
  }

  // Transposes a 4 x 4 matrix of 32-bit words in place.
  static void transpose(Vec (&row)[kLanes]) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = i + 1; j < kLanes; ++j) {
        const float upper = row[i][j];
        row[i][j] = row[j][i];
        row[j][i] = upper;
      }
    }
  }

 private:
  static Bits as_bits(Vec v) {
    Bits bits;
    std::memcpy(&bits, &v, sizeof(v));
    return bits;
  }
  static Vec as_floats(Bits bits) {
    Vec v;
    std::memcpy(&v, &bits, sizeof(bits));
    return v;
  }
};

}  // namespace
}  // namespace torchyard

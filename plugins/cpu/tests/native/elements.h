// Elements of each dtype as the tests read and write them, apart from the kernels' conversions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention/attention.h"

namespace {

using torchyard::DType;

inline size_t element_size(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

inline double read_element(DType dtype, const unsigned char* at) {
  if (dtype == DType::kFloat32) {
    float x;
    std::memcpy(&x, at, 4);
    return x;
  }
  uint16_t half;
  std::memcpy(&half, at, 2);
  if (dtype == DType::kBFloat16) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  double x = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) x = fraction == 0 ? HUGE_VAL : NAN;
  return (half >> 15) != 0 ? -x : x;
}

// Writes what the dtype holds of a finite number below 65504, cut off toward zero.
inline void write_element(DType dtype, unsigned char* at, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (dtype == DType::kFloat32) {
    std::memcpy(at, &bits, 4);
    return;
  }
  uint16_t half = static_cast<uint16_t>(bits >> 16);
  if (dtype == DType::kFloat16) {
    const float size = std::abs(x);
    int exponent = 0;
    std::frexp(size, &exponent);
    const int lowest = size < 0x1p-14f ? -24 : exponent - 11;  // the last bit's
    const uint32_t units = static_cast<uint32_t>(std::ldexp(size, -lowest));
    const uint32_t above = static_cast<uint32_t>(lowest + 24) << 10;
    half = static_cast<uint16_t>((bits >> 31 << 15) | (above + units));
  }
  std::memcpy(at, &half, 2);
}

}  // namespace

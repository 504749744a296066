// The element types that kernels read and write, and the bits they are made of.
#pragma once

#include <cstdint>

namespace torchyard {

// The upper half of a float32. A type of its own, so that overloads tell it from an integer.
struct Bf16 {
  uint16_t bits;
};

// IEEE 754 binary16: a sign, 5 bits of exponent and 10 of fraction.
struct F16 {
  uint16_t bits;
};

// Added to a float32's bits together with the lowest kept bit: rounds to nearest, ties to even.
constexpr uint32_t kBf16HalfMinusOne = 0x7fff;
constexpr uint32_t kQuietNan = 0x7fc00000;
constexpr uint32_t kInfinityBits = 0x7f800000;

}  // namespace torchyard

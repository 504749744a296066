// bfloat for devices of OpenCL that have none: a float is rounded to it, and what is computed from
// it is a float. There are no vectors of it.
#pragma once
#define TORCHYARD_BFLOAT

struct bfloat {
  unsigned short bits;

  bfloat() = default;
  bfloat(float x) : bits(rounded(__builtin_bit_cast(unsigned, x))) {}
  operator float() const { return __builtin_bit_cast(float, unsigned(bits) << 16); }

 private:
  // To the nearest, of two the even one; NaN stays NaN.
  static unsigned short rounded(unsigned whole) {
    if ((whole & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(whole >> 16 | 0x40u);
    return (unsigned short)((whole + 0x7fffu + (whole >> 16 & 1u)) >> 16);
  }
};

// The one inner loop: a few rows of words times a narrow packed matrix, accumulated in registers.
#pragma once

#include <cstdint>

#include "attention/format.h"

namespace torchyard {
namespace {

// sum(r, :) += over w < count of a(r, w) . b(w, :), where a(r, w) is the word at
// r * kRowStride + w * kWordStride and b is [count][kVectors * kLanes]. Everything is unrolled so
// that `sum` never leaves the registers, and the strides are constants so that all rows are read
// through one address register: six of them would push accumulators out.
template <class Format, int kRowStride, int kWordStride, int kRows, int kVectors>
TORCHYARD_INLINE void accumulate(typename Format::Vec (&sum)[kRows][kVectors], const uint32_t* a,
                                 const uint32_t* b, int64_t count) {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  for (int64_t w = 0; w < count; ++w) {
    Vec column[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) column[j] = Isa::load(b + j * Isa::kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Vec left = Isa::broadcast_word(a + r * kRowStride);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[r][j] = Format::dot(sum[r][j], left, column[j]);
    }
    a += kWordStride;
    b += kVectors * Isa::kLanes;
  }
}

template <class Format, int kRows, int kVectors>
TORCHYARD_INLINE void clear(typename Format::Vec (&sum)[kRows][kVectors]) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[r][j] = Format::Isa::zero();
  }
}

}  // namespace
}  // namespace torchyard

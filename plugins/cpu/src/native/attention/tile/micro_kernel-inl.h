// The one inner loop: a few rows of words times a narrow packed matrix, accumulated in registers.
#pragma once

#include <cstdint>

#include "attention/tile/layout.h"
#include "attention/tile/visibility-inl.h"

namespace torchyard {
namespace {

// sum(r, :) += over w < count of a(r, w) . b(w, :), where a(r, w) is the word at
// r * kRowStride + w * kWordStride and b is [count][kVectors * kLanes], its rows kColumns words
// apart. Everything is unrolled so that `sum` never leaves the registers, and the strides are
// constants so that all rows are read through one address register: six of them would push
// accumulators out.
template <class Format, int kRowStride, int kWordStride, int kColumns, int kRows, int kVectors>
TORCHYARD_INLINE void accumulate_columns(typename Format::Vec (&sum)[kRows][kVectors],
                                         const uint32_t* a, const uint32_t* b, int64_t count) {
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
    b += kColumns;
  }
}

// The same where the rows of b lie without a gap.
template <class Format, int kRowStride, int kWordStride, int kRows, int kVectors>
TORCHYARD_INLINE void accumulate(typename Format::Vec (&sum)[kRows][kVectors], const uint32_t* a,
                                 const uint32_t* b, int64_t count) {
  accumulate_columns<Format, kRowStride, kWordStride, kVectors * Format::Isa::kLanes>(sum, a, b,
                                                                                      count);
}

template <class Format, int kRows, int kVectors>
TORCHYARD_INLINE void clear(typename Format::Vec (&sum)[kRows][kVectors]) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[r][j] = Format::Isa::zero();
  }
}

// The two products of a tile. A format that has instructions for whole matrices specialises it.
template <class Format, int kRows>
struct Products {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using L = Layout<Format>;

  // The fewest vectors of keys that scores are computed for. One would leave too few accumulators
  // to hide the latency of each; two are also the whole tile where registers are few.
  static constexpr int kLeastVectors = L::kSubPanels == 1 ? 2 : Isa::kTileVectors;

  // score = query . keys, over `words` words.
  template <int kVectors>
  static TORCHYARD_INLINE void scores(Vec (&score)[kRows][kVectors], const uint32_t* query,
                                      const uint32_t* keys, int64_t words) {
    clear<Format, kRows, kVectors>(score);
    accumulate_columns<Format, 1, Isa::kTileRows, L::kTileKeys>(score, query, keys, words);
  }

  // out [kRows][stride] += probabilities . values over what is seen of panels, in kVectors vectors
  // of columns, which lie `offset` words into each panel's values.
  template <int kVectors>
  static TORCHYARD_INLINE void values(float* out, int64_t stride,
                                      const uint32_t* const* packed_values, int64_t offset,
                                      const TilePanel<kRows>* keys, int panels,
                                      const uint32_t* probabilities) {
    Vec sum[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        sum[r][j] = Isa::load(out + r * stride + j * Isa::kLanes);
      }
    }
    for (int p = 0; p < panels; ++p) {
      const int64_t first = keys[p].first / Format::kPair;
      const int64_t end = (keys[p].end + Format::kPair - 1) / Format::kPair;
      accumulate<Format, L::kStripStride, 1>(
          sum, probabilities + p * L::kPanelWords + first,
          packed_values[p] + offset + first * kVectors * Isa::kLanes, end - first);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        Isa::store(out + r * stride + j * Isa::kLanes, sum[r][j]);
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

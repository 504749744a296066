// The inner loop: a block of rows times part of a panel, accumulated in registers.
#pragma once

#include <cstdint>

#include "attention/format.h"
#include "linear/linear.h"

namespace torchyard {
namespace {

// Accumulators: rows x vectors. With 32 registers 14 x 2, 2 of a panel and broadcasts of x: of all
// shapes that fit, the one that reads the panel, which comes from a farther cache, least often.
template <class Isa>
struct TileShape {
  static constexpr int kRows = Isa::kLanes == 16 ? 14 : Isa::kTileRows;
  static constexpr int kVectors = Isa::kLanes == 16 ? 2 : Isa::kTileVectors;
  static constexpr int kColumns = kVectors * Isa::kLanes;
  static_assert(kPanelColumns % kColumns == 0, "a panel is whole tiles");
};

// A panel's words, ready to be multiplied.
template <class Isa>
struct WordSource {
  using Element = uint32_t;
  static TORCHYARD_INLINE typename Isa::Vec load(const uint32_t* p) { return Isa::load(p); }
};

// A panel's float16, widened on the way.
template <class Isa>
struct HalfSource {
  using Element = F16;
  static TORCHYARD_INLINE typename Isa::Vec load(const F16* p) {
    return Isa::load_first(p, Isa::kLanes);
  }
};

// sum(r, :) over `count` words of x [count][kRows] and of a panel [count][32], from column 0 of `b`
// on; added to `c`, rows `c_row` floats apart, unless `fresh`.
//
// With few rows there are fewer sums than additions in flight, so there are several of each, added
// at the end; and memory, not arithmetic, sets the pace, so what comes later is asked for early.
template <class Format, class Source, int kRows, bool kFetch>
TORCHYARD_INLINE void tile(const uint32_t* a, const typename Source::Element* b, int64_t count,
                           float* c, int64_t c_row, bool fresh) {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  constexpr int kVectors = TileShape<Isa>::kVectors;
  constexpr int kParts = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  Vec sum[kParts][kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][r][j] = Isa::zero();
    }
  }
  const auto step = [&](int i) __attribute__((always_inline)) {
    Vec column[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) column[j] = Source::load(b + j * Isa::kLanes);
    if constexpr (kFetch) {
      constexpr int64_t kAhead = 12288 / static_cast<int64_t>(sizeof(typename Source::Element));
      constexpr int kLine = 64 / static_cast<int>(sizeof(typename Source::Element));
#pragma GCC unroll 4
      for (int at = 0; at < TileShape<Isa>::kColumns; at += kLine) {
        __builtin_prefetch(b + kAhead + at);
      }
    }
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const Vec left = Isa::broadcast_word(a + r);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][r][j] = Format::dot(sum[i][r][j], left, column[j]);
    }
    a += kRows;
    b += kPanelColumns;
  };
  int64_t w = 0;
  if constexpr (kParts > 1) {
    for (; w + kParts <= count; w += kParts) {
#pragma GCC unroll 4
      for (int i = 0; i < kParts; ++i) step(i);
    }
  }
  for (; w < count; ++w) step(0);
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      Vec total = sum[0][r][j];
#pragma GCC unroll 4
      for (int i = 1; i < kParts; ++i) total = Isa::add(total, sum[i][r][j]);
      float* place = c + r * c_row + j * Isa::kLanes;
      Isa::store(place, fresh ? total : Isa::add(total, Isa::load(place)));
    }
  }
}

template <class Format, class Source, int kRows, bool kFetch>
TORCHYARD_NOINLINE void panel_tiles(const uint32_t* a, const typename Source::Element* b,
                                    int64_t count, float* c, int64_t c_row, bool fresh) {
  constexpr int kColumns = TileShape<typename Format::Isa>::kColumns;
  for (int at = 0; at < kPanelColumns; at += kColumns) {
    tile<Format, Source, kRows, kFetch>(a, b + at, count, c + at, c_row, fresh);
  }
}

// The same for `rows` rows, 1 to TileShape::kRows.
template <class Format, class Source, bool kFetch,
          int kRows = TileShape<typename Format::Isa>::kRows>
TORCHYARD_INLINE void panel_product(int rows, const uint32_t* a, const typename Source::Element* b,
                                    int64_t count, float* c, int64_t c_row, bool fresh) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      panel_tiles<Format, Source, kRows, kFetch>(a, b, count, c, c_row, fresh);
    } else {
      panel_product<Format, Source, kFetch, kRows - 1>(rows, a, b, count, c, c_row, fresh);
    }
  }
}

}  // namespace
}  // namespace torchyard

// The inner loop: a block of rows times part of a panel, accumulated in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/read_ahead.h"
#include "linear/linear.h"
#include "simd/format.h"
#include "simd/lanes.h"

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

// Asks for what a loop that reads a panel from memory is at some steps later.
class FetchAhead {
 public:
  // Of a weight of so many bytes.
  explicit FetchAhead(int64_t whole) : ahead_(ReadAhead::by_parts(whole), 12288) {}

  template <class Element>
  TORCHYARD_INLINE void operator()(const Element* step) const {
    constexpr int kLine = ReadAhead::kLine / static_cast<int>(sizeof(Element));
#pragma GCC unroll 4
    for (int at = 0; at < kPanelColumns; at += kLine) ahead_.first_level(step + at);
  }

 private:
  ReadAhead ahead_;
};

// A panel's words, ready to be multiplied. Like every source: one step of depth after another, from
// some column on, in a loop of a multiple of kPeriod steps.
template <class Isa>
struct WordSource {
  static constexpr int kPeriod = 1;
  const uint32_t* words;

  TORCHYARD_INLINE typename Isa::Vec load(int column) const { return Isa::load(words + column); }
  TORCHYARD_INLINE void advance() { words += kPanelColumns; }
  TORCHYARD_INLINE const uint32_t* step() const { return words; }
  TORCHYARD_INLINE WordSource from(int column) const { return {words + column}; }
};

// A panel's float16, widened on the way.
template <class Isa>
struct HalfSource {
  static constexpr int kPeriod = 1;
  const F16* halves;

  TORCHYARD_INLINE typename Isa::Vec load(int column) const {
    return Isa::load_first(halves + column, Isa::kLanes);
  }
  TORCHYARD_INLINE void advance() { halves += kPanelColumns; }
  TORCHYARD_INLINE const F16* step() const { return halves; }
  TORCHYARD_INLINE HalfSource from(int column) const { return {halves + column}; }
};

// A panel's pairs of bfloat16, widened on the way: the first of each, then the second. Compilers
// know which it is where a loop takes two steps.
template <class Isa>
struct PairSource {
  static constexpr int kPeriod = 2;
  static constexpr int32_t kHighHalf = static_cast<int32_t>(0xffff0000u);
  const Bf16* pairs;
  bool second = false;

  TORCHYARD_INLINE typename Isa::Vec load(int column) const {
    using Bits = typename Lanes<Isa>::Int;
    const Bits both = Lanes<Isa>::template load<Bits>(pairs + 2 * column);
    return Lanes<Isa>::floats(second ? both & kHighHalf : both << 16);
  }
  TORCHYARD_INLINE void advance() {
    if (second) pairs += 2 * kPanelColumns;
    second = !second;
  }
  TORCHYARD_INLINE const Bf16* step() const { return pairs + (second ? kPanelColumns : 0); }
  TORCHYARD_INLINE PairSource from(int column) const { return {pairs + 2 * column, second}; }
};

// A panel's float16, and kept as words for the blocks of rows that follow: to widen and to store
// takes nothing from the multiplications that it is done between.
template <class Isa>
struct KeptHalfSource {
  static constexpr int kPeriod = 1;
  const F16* halves;
  uint32_t* words;

  TORCHYARD_INLINE typename Isa::Vec load(int column) const {
    const typename Isa::Vec wide = Isa::load_first(halves + column, Isa::kLanes);
    Isa::store(words + column, wide);
    return wide;
  }
  TORCHYARD_INLINE void advance() {
    halves += kPanelColumns;
    words += kPanelColumns;
  }
  TORCHYARD_INLINE KeptHalfSource from(int column) const {
    return {halves + column, words + column};
  }
};

// Asks for lines that are read later, while words are multiplied that lie in a cache: at each step
// kLines of them, some steps from each row. No address is wrong here: none is read.
template <int kLinesOfStep, int kStepsOfRow = 16>
struct FetchRows {
  static constexpr int64_t kSteps = kStepsOfRow;
  static constexpr int kLine = 64;
  static constexpr int64_t kRowBytes = kSteps * kLinesOfStep * kLine;
  const char* first;
  int64_t row;  // bytes from one row to the next

  TORCHYARD_INLINE void operator()(int64_t step) const {
    const char* at = first + step / kSteps * row + step % kSteps * (kLinesOfStep * kLine);
#pragma GCC unroll 4
    for (int i = 0; i < kLinesOfStep; ++i) __builtin_prefetch(at + i * kLine, 0, 2);
  }
};

struct FetchNothing {
  TORCHYARD_INLINE void operator()(int64_t) const {}
};

// sum(r, :) over `count` words of rows and of a panel [count][32], from the source's column on;
// added to `c`, rows `c_row` floats apart, unless `fresh`. Rows lie side by side, [count][kRows],
// or one after another, kApart words from each to the next.
//
// With few rows there are fewer sums than additions in flight, so there are several of each, added
// at the end.
template <class Format, class Source, int kRows, int kApart, class Fetch>
TORCHYARD_INLINE void tile(const uint32_t* a, Source source, int64_t count, float* c, int64_t c_row,
                           bool fresh, Fetch fetch) {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  constexpr int kVectors = TileShape<Isa>::kVectors;
  constexpr int kParts = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  constexpr int kSteps = kParts > Source::kPeriod ? kParts : Source::kPeriod;
  Vec sum[kParts][kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][r][j] = Isa::zero();
    }
  }
  if (!fresh) {
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) __builtin_prefetch(c + r * c_row + j * Isa::kLanes, 1);
    }
  }
  int64_t w = 0;
  const auto step = [&](int i) __attribute__((always_inline)) {
    Vec column[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) column[j] = source.load(j * Isa::kLanes);
    if constexpr (std::is_same_v<Fetch, FetchAhead>) {
      fetch(source.step());
    } else {
      fetch(w + i);
    }
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const Vec left = Isa::broadcast_word(a + r * kApart);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        Vec& part = sum[i % kParts][r][j];
        part = Format::dot(part, left, column[j]);
      }
    }
    a += kApart > 1 ? 1 : kRows;
    source.advance();
  };
  if constexpr (kSteps > 1) {
    for (; w + kSteps <= count; w += kSteps) {
#pragma GCC unroll 4
      for (int i = 0; i < kSteps; ++i) step(i);
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

template <class Format, class Source, int kRows, int kApart, class Fetch>
TORCHYARD_NOINLINE void panel_tiles(const uint32_t* a, Source source, int64_t count, float* c,
                                    int64_t c_row, bool fresh, Fetch fetch) {
  constexpr int kColumns = TileShape<typename Format::Isa>::kColumns;
  tile<Format, Source, kRows, kApart>(a, source, count, c, c_row, fresh, fetch);
  for (int at = kColumns; at < kPanelColumns; at += kColumns) {
    tile<Format, Source, kRows, kApart>(a, source.from(at), count, c + at, c_row, fresh,
                                        FetchNothing{});
  }
}

// The same for `rows` rows, 1 to TileShape::kRows.
template <class Format, int kApart = 1, int kRows = TileShape<typename Format::Isa>::kRows,
          class Source, class Fetch>
TORCHYARD_INLINE void panel_product(int rows, const uint32_t* a, Source source, int64_t count,
                                    float* c, int64_t c_row, bool fresh, Fetch fetch) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      panel_tiles<Format, Source, kRows, kApart>(a, source, count, c, c_row, fresh, fetch);
    } else {
      panel_product<Format, kApart, kRows - 1>(rows, a, source, count, c, c_row, fresh, fetch);
    }
  }
}

// What an item multiplies its blocks by.
template <class Format>
struct PanelProducts {
  // Rows of a block at most, and whether so many rows of sums are written whatever the block has.
  static constexpr int kRows = TileShape<typename Format::Isa>::kRows;
  static constexpr bool kWritesAll = false;

  template <class Source, class Fetch>
  static TORCHYARD_INLINE void run(int rows, const uint32_t* a, Source source, int64_t count,
                                   float* c, int64_t c_row, bool fresh, Fetch fetch) {
    panel_product<Format>(rows, a, source, count, c, c_row, fresh, fetch);
  }
};

}  // namespace
}  // namespace torchyard

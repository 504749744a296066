// Packs a block of rows for the backward, and takes what each row needs besides.
#pragma once

#include <cstdint>

#include "attention/backward/layout.h"
#include "attention/tile/tile-inl.h"
#include "simd/element.h"

namespace torchyard {
namespace {

// The magnitude of infinity; every NaN's is greater.
constexpr uint32_t kNotFiniteBits = 0x7f800000;

template <class Format>
struct RowPacker {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  using Element = typename Format::Element;
  static constexpr int kTileRows = Isa::kTileRows;

  // Word w of row r goes to [r / kTileRows][w][r % kTileRows]; rows from `count` on are 0.
  static void tiles(const Element* first, int64_t row_stride, int64_t count, int64_t size,
                    int64_t words, uint32_t* out) {
    constexpr int64_t kFull = int64_t{Isa::kLanes} * Format::kPair;
    // Vectors of kLanes rows are stored kTileRows words apart: what one writes too much, the next
    // corrects, so words go upwards and groups of rows downwards.
    constexpr int kLastGroup = (kTileRows - 1) / Isa::kLanes * Isa::kLanes;
    for (int64_t row = 0; row < count; row += kTileRows) {
      uint32_t* tile = out + row * words;
      for (int group = kLastGroup; group >= 0; group -= Isa::kLanes) {
        for (int64_t word = 0; word < words; word += Isa::kLanes) {
          const int64_t elements = size - word * Format::kPair;
          const int available = static_cast<int>(elements < kFull ? elements : kFull);
          Vec block[Isa::kLanes];
#pragma GCC unroll 16
          for (int i = 0; i < Isa::kLanes; ++i) {
            const int r = group + i;
            block[i] = r < kTileRows && row + r < count
                           ? Format::words(first + (row + r) * row_stride + word * Format::kPair,
                                           available)
                           : Isa::zero();
          }
          Isa::transpose(block);
          const int64_t left = words - word;
          const int64_t n = left < Isa::kLanes ? left : Isa::kLanes;
          for (int64_t w = 0; w < n; ++w)
            Isa::store(tile + (word + w) * kTileRows + group, block[w]);
        }
      }
    }
  }

  // Element e of the kPair rows of word w goes to [w][e]; rows from `count` on are 0. Returns
  // whether an element is not finite.
  static bool columns(const Element* first, int64_t row_stride, int64_t count, int64_t padded,
                      int64_t size, int64_t columns, uint32_t* out) {
    Vec largest = Isa::zero();
    for (int64_t row = 0; row < padded; row += Format::kPair) {
      for (int64_t column = 0; column < columns; column += Isa::kLanes) {
        const int64_t left = size - column;
        Vec words = Isa::zero();
        if (row < count) {
          const Element* at = first + row * row_stride + column;
          words = Format::value_words(at, row + 1 < count ? at + row_stride : nullptr,
                                      static_cast<int>(left < Isa::kLanes ? left : Isa::kLanes));
          largest = Format::magnitude(largest, words);
        }
        Isa::store(out + row / Format::kPair * columns + column, words);
      }
    }
    for (int r = 0; r < kTileRows; ++r) out[padded / Format::kPair * columns + r] = 0;
    return Isa::largest_bits(largest) >= kNotFiniteBits;
  }

  static float dot(const Element* a, const Element* b, int64_t size) {
    Vec sum = Isa::zero();
    for (int64_t i = 0; i < size; i += Isa::kLanes) {
      const int n = static_cast<int>(size - i < Isa::kLanes ? size - i : Isa::kLanes);
      sum = Isa::fma(Isa::load_first(a + i, n), Isa::load_first(b + i, n), sum);
    }
    return Isa::sum(sum);
  }
};

}  // namespace
}  // namespace torchyard

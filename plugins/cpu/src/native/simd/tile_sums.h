// Products of up to two tiles of rows with up to two tiles of columns, or of one with three.
//
// Sums of 32 x 32 floats are four tiles, and four products take four tiles that are loaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/compiler.h"
#include "base/isa/amx_tiles.h"

namespace torchyard {
namespace {

constexpr int kTwo = 2 * kMatrixRows;
constexpr int64_t kTileRowBytes = kMatrixWords * sizeof(uint32_t);

// A rectangle of tiles: where it begins, and bytes from one row to the next and to the second tile.
struct TilePlace {
  const char* first;
  size_t stride;
  int64_t second;
};

// Tiles 0 to 3 are sums, 4 and 5 the left factor's, 6 and 7 the right one's; a third one is 5.
template <int kLeft, int kRight>
struct TileSums {
  static_assert(kRight <= (kLeft == 1 ? 3 : 2), "there are eight tiles");

  static TORCHYARD_INLINE void begin(const float* c, int64_t row, bool fresh) {
    const size_t stride = static_cast<size_t>(row) * sizeof(float);
    const float* const lower = c + kMatrixRows * row;
    matrix_fence();
    if (fresh) {
      TORCHYARD_TILE_ZERO(0);
      if constexpr (kRight > 1) TORCHYARD_TILE_ZERO(1);
      if constexpr (kLeft == 2 || kRight == 3) TORCHYARD_TILE_ZERO(2);
      if constexpr (kLeft * kRight == 4) TORCHYARD_TILE_ZERO(3);
    } else {
      TORCHYARD_TILE_LOAD(0, c, stride);
      if constexpr (kRight > 1) TORCHYARD_TILE_LOAD(1, c + kMatrixWords, stride);
      if constexpr (kRight == 3) TORCHYARD_TILE_LOAD(2, c + 2 * kMatrixWords, stride);
      if constexpr (kLeft == 2) TORCHYARD_TILE_LOAD(2, lower, stride);
      if constexpr (kLeft * kRight == 4) TORCHYARD_TILE_LOAD(3, lower + kMatrixWords, stride);
    }
  }

  static TORCHYARD_INLINE void add(const TilePlace& left, const TilePlace& right) {
    TORCHYARD_TILE_LOAD(4, left.first, left.stride);
    TORCHYARD_TILE_LOAD(6, right.first, right.stride);
    TORCHYARD_TILE_PRODUCT(0, 4, 6);
    if constexpr (kRight > 1) {
      TORCHYARD_TILE_LOAD(7, right.first + right.second, right.stride);
      TORCHYARD_TILE_PRODUCT(1, 4, 7);
    }
    if constexpr (kRight == 3) {
      TORCHYARD_TILE_LOAD(5, right.first + 2 * right.second, right.stride);
      TORCHYARD_TILE_PRODUCT(2, 4, 5);
    }
    if constexpr (kLeft == 2) {
      TORCHYARD_TILE_LOAD(5, left.first + left.second, left.stride);
      TORCHYARD_TILE_PRODUCT(2, 5, 6);
      if constexpr (kRight == 2) TORCHYARD_TILE_PRODUCT(3, 5, 7);
    }
  }

  // Asks for what is loaded some time later: a tile is loaded at the speed of the first-level cache
  // where all of it lies there, and waits for the second-level one a line after another.
  static TORCHYARD_INLINE void ask_for_left(const TilePlace& left) { ask_for<kLeft>(left); }
  static TORCHYARD_INLINE void ask_for_right(const TilePlace& right) { ask_for<kRight>(right); }

  // As `add`, where one factor stays for several products.
  static TORCHYARD_INLINE void load_left(const TilePlace& left) {
    TORCHYARD_TILE_LOAD(4, left.first, left.stride);
    if constexpr (kLeft == 2) TORCHYARD_TILE_LOAD(5, left.first + left.second, left.stride);
  }
  static TORCHYARD_INLINE void load_right(const TilePlace& right) {
    static_assert(kRight < 3, "a third one lies where the left factor may be");
    TORCHYARD_TILE_LOAD(6, right.first, right.stride);
    if constexpr (kRight == 2) TORCHYARD_TILE_LOAD(7, right.first + right.second, right.stride);
  }
  static TORCHYARD_INLINE void multiply() {
    TORCHYARD_TILE_PRODUCT(0, 4, 6);
    if constexpr (kRight == 2) TORCHYARD_TILE_PRODUCT(1, 4, 7);
    if constexpr (kLeft == 2) TORCHYARD_TILE_PRODUCT(2, 5, 6);
    if constexpr (kLeft * kRight == 4) TORCHYARD_TILE_PRODUCT(3, 5, 7);
  }

  static TORCHYARD_INLINE void end(float* c, int64_t row) {
    const size_t stride = static_cast<size_t>(row) * sizeof(float);
    float* const lower = c + kMatrixRows * row;
    TORCHYARD_TILE_STORE(0, c, stride);
    if constexpr (kRight > 1) TORCHYARD_TILE_STORE(1, c + kMatrixWords, stride);
    if constexpr (kRight == 3) TORCHYARD_TILE_STORE(2, c + 2 * kMatrixWords, stride);
    if constexpr (kLeft == 2) TORCHYARD_TILE_STORE(2, lower, stride);
    if constexpr (kLeft * kRight == 4) TORCHYARD_TILE_STORE(3, lower + kMatrixWords, stride);
    matrix_fence();
  }

 private:
  template <int kTiles>
  static TORCHYARD_INLINE void ask_for(const TilePlace& place) {
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma GCC unroll 16
      for (size_t row = 0; row < kMatrixRows; ++row) {
        __builtin_prefetch(place.first + tile * place.second + row * place.stride);
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

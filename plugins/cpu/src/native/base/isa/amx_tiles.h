// Matrix tiles: eight registers of 16 rows of 64 bytes, and the product of two of them.
//
// With TORCHYARD_AMX_MODEL the registers are memory and the instructions are functions that compute
// what Intel's manual says (Software Developer's Manual, volume 2, TDPBF16PS). That shows whether a
// kernel lays its operands out rightly, on any processor; it shows nothing of the instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(TORCHYARD_AMX_MODEL)
#include <cstring>
#else
#include <immintrin.h>
#endif

namespace torchyard {
namespace {

constexpr int kMatrixRows = 16;
// 32-bit words of a row: pairs of bfloat16, or floats.
constexpr int kMatrixWords = 16;

#if defined(TORCHYARD_AMX_MODEL)

struct MatrixTile {
  uint32_t row[kMatrixRows][kMatrixWords];
};

inline MatrixTile& matrix_tile(int number) {
  static thread_local MatrixTile tiles[8];
  return tiles[number];
}

inline void model_load(int to, const void* from, size_t stride) {
  for (int r = 0; r < kMatrixRows; ++r) {
    std::memcpy(matrix_tile(to).row[r], static_cast<const char*>(from) + r * stride, 64);
  }
}

inline void model_store(int from, void* to, size_t stride) {
  for (int r = 0; r < kMatrixRows; ++r) {
    std::memcpy(static_cast<char*>(to) + r * stride, matrix_tile(from).row[r], 64);
  }
}

// A half of a pair as a float; denormals count as zero.
inline float model_half(uint32_t word, int half) {
  uint32_t bits = half == 0 ? word << 16 : word & 0xffff0000u;
  if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// The even and the odd halves are summed apart along the row, and then added to what is there.
inline void model_product(int to, int left, int right) {
  for (int r = 0; r < kMatrixRows; ++r) {
    for (int c = 0; c < kMatrixWords; ++c) {
      float sum[2] = {0.0f, 0.0f};
      for (int w = 0; w < kMatrixWords; ++w) {
        for (int half = 0; half < 2; ++half) {
          sum[half] = __builtin_fmaf(model_half(matrix_tile(left).row[r][w], half),
                                     model_half(matrix_tile(right).row[w][c], half), sum[half]);
        }
      }
      float total;
      std::memcpy(&total, &matrix_tile(to).row[r][c], sizeof(total));
      total += sum[0] + sum[1];
      std::memcpy(&matrix_tile(to).row[r][c], &total, sizeof(total));
    }
  }
}

// Macros as the instructions are: a tile's number is part of the instruction.
#define TORCHYARD_TILE_ZERO(to) (matrix_tile(to) = MatrixTile{})
#define TORCHYARD_TILE_LOAD(to, from, stride) model_load(to, from, stride)
#define TORCHYARD_TILE_STORE(from, to, stride) model_store(from, to, stride)
#define TORCHYARD_TILE_PRODUCT(to, left, right) model_product(to, left, right)

// Holds the tiles' configuration for a scope of one thread.
class MatrixTiles {
 public:
  MatrixTiles() {
    // As undefined as registers are: each float a NaN.
    for (int tile = 0; tile < 8; ++tile) std::memset(&matrix_tile(tile), 0xff, sizeof(MatrixTile));
  }
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;
};

#else

#define TORCHYARD_TILE_ZERO(to) _tile_zero(to)
#define TORCHYARD_TILE_LOAD(to, from, stride) _tile_loadd(to, from, stride)
#define TORCHYARD_TILE_STORE(from, to, stride) _tile_stored(from, to, stride)
#define TORCHYARD_TILE_PRODUCT(to, left, right) _tile_dpbf16ps(to, left, right)

class MatrixTiles {
 public:
  MatrixTiles() {
    alignas(64) uint8_t shape[64] = {};
    shape[0] = 1;  // the palette that exists
    for (int tile = 0; tile < 8; ++tile) {
      shape[16 + 2 * tile] = 64;  // bytes of a row, 16 bits of them
      shape[48 + tile] = uint8_t{kMatrixRows};
    }
    // Not the compiler's function, of which GCC believes that it reads eight bytes.
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
  }
  // The state of eight tiles makes each switch of threads slower while it is in use.
  ~MatrixTiles() { _tile_release(); }
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;
};

#endif

// What ordinary code wrote before must be in memory, and what tiles wrote must be read again after:
// the instructions do not tell the compiler which memory they touch.
inline void matrix_fence() { __asm__ volatile("" ::: "memory"); }

}  // namespace
}  // namespace torchyard

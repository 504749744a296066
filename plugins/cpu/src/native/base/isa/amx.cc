#include "base/isa/amx.h"

#include <cstdint>
#include <cstring>

#include "base/isa/amx_tiles.h"

#if defined(__linux__) && !defined(TORCHYARD_AMX_MODEL)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace torchyard {

namespace {

bool permitted() {
#if defined(TORCHYARD_AMX_MODEL)
  return true;
#elif defined(__linux__)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// Of a whole number up to 255, which bfloat16 holds exactly.
uint32_t bf16_bits(int x) {
  const float value = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits >> 16;
}

int left_at(int row, int k) { return (row * 7 + k * 3) % 23 - 11; }
int right_at(int k, int column) { return (k * 5 + column * 11) % 19 - 9; }

// Whole numbers whose sums float32 holds exactly, so that no order of summation excuses a
// difference.
bool product_is_right() {
  uint32_t left[kMatrixRows][kMatrixWords];
  uint32_t right[kMatrixRows][kMatrixWords];
  float sum[kMatrixRows][kMatrixWords];
  for (int r = 0; r < kMatrixRows; ++r) {
    for (int w = 0; w < kMatrixWords; ++w) {
      left[r][w] = bf16_bits(left_at(r, 2 * w)) | bf16_bits(left_at(r, 2 * w + 1)) << 16;
      right[r][w] = bf16_bits(right_at(2 * r, w)) | bf16_bits(right_at(2 * r + 1, w)) << 16;
      sum[r][w] = static_cast<float>(r - w);
    }
  }
  {
    const MatrixTiles tiles;
    matrix_fence();
    TORCHYARD_TILE_LOAD(0, sum, sizeof(sum[0]));
    TORCHYARD_TILE_LOAD(1, left, sizeof(left[0]));
    TORCHYARD_TILE_LOAD(2, right, sizeof(right[0]));
    TORCHYARD_TILE_PRODUCT(0, 1, 2);
    TORCHYARD_TILE_STORE(0, sum, sizeof(sum[0]));
    matrix_fence();
  }
  for (int r = 0; r < kMatrixRows; ++r) {
    for (int c = 0; c < kMatrixWords; ++c) {
      int expected = r - c;
      for (int k = 0; k < 2 * kMatrixWords; ++k) expected += left_at(r, k) * right_at(k, c);
      if (sum[r][c] != static_cast<float>(expected)) return false;
    }
  }
  return true;
}

}  // namespace

bool matrix_tiles_work() { return permitted() && product_is_right(); }

}  // namespace torchyard

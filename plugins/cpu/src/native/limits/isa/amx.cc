// Arithmetic of matrix tiles of bfloat16.
#include "base/isa/amx_tiles.h"
#include "base/isa/kernel_table.h"
#include "limits/limits.h"

namespace torchyard {
namespace {

constexpr int kSteps = 1 << 12;
constexpr int kSums = 4;

// The tiles' speed is that of any numbers, so zeros are multiplied.
double multiply_tiles() {
  const MatrixTiles tiles;
  TORCHYARD_TILE_ZERO(0);
  TORCHYARD_TILE_ZERO(1);
  TORCHYARD_TILE_ZERO(2);
  TORCHYARD_TILE_ZERO(3);
  TORCHYARD_TILE_ZERO(4);
  TORCHYARD_TILE_ZERO(5);
  for (int i = 0; i < kSteps; ++i) {
    TORCHYARD_TILE_PRODUCT(0, 4, 5);
    TORCHYARD_TILE_PRODUCT(1, 4, 5);
    TORCHYARD_TILE_PRODUCT(2, 4, 5);
    TORCHYARD_TILE_PRODUCT(3, 4, 5);
    matrix_fence();
  }
  return 2.0 * kSteps * kSums * kMatrixRows * kMatrixWords * (2 * kMatrixWords);
}

}  // namespace

TORCHYARD_KERNELS(limits, ArithmeticLoop, amx,
                  {"amx_bfloat16", "bfloat16", isa::amx.required, &multiply_tiles})

}  // namespace torchyard

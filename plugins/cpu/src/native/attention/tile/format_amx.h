// Words are pairs of bfloat16 that matrix tiles multiply; everything else is AVX-512's.
#pragma once

#include <cstdint>

#include "attention/tile/layout.h"
#include "attention/tile/micro_kernel-inl.h"
#include "attention/tile/values-inl.h"
#include "base/isa/amx_tiles.h"
#include "simd/format_bf16_pair_avx512.h"

namespace torchyard {
namespace {

// A tile of rows is one matrix tile high.
struct AmxIsa : Avx512 {
  static constexpr int kTileRows = kMatrixRows;
};

struct AmxFormat : Bf16PairFormat {
  using Isa = AmxIsa;
};

template <>
constexpr int kWordStep<AmxFormat> = kMatrixWords;

template <>
struct Products<AmxFormat, kMatrixRows> {
  using Vec = AmxFormat::Vec;
  static constexpr int kVectors = AmxIsa::kTileVectors;
  static constexpr int kLeastVectors = kVectors;
  static_assert(kVectors == 4, "a row of sums is four tiles");

  // score = query [kMatrixRows][words] . keys [words][kVectors * kLanes]
  static TORCHYARD_INLINE void scores(Vec (&score)[kMatrixRows][kVectors], const uint32_t* query,
                                      const uint32_t* keys, int64_t words) {
    constexpr int64_t kColumns = int64_t{kVectors} * AmxIsa::kLanes;
    constexpr size_t kStride = kColumns * sizeof(uint32_t);
    const size_t row_stride = static_cast<size_t>(words) * sizeof(uint32_t);
    matrix_fence();
    TORCHYARD_TILE_ZERO(0);
    TORCHYARD_TILE_ZERO(1);
    TORCHYARD_TILE_ZERO(2);
    TORCHYARD_TILE_ZERO(3);
    for (int64_t w = 0; w < words; w += kMatrixWords) {
      const uint32_t* b = keys + w * kColumns;
      TORCHYARD_TILE_LOAD(4, query + w, row_stride);
      TORCHYARD_TILE_LOAD(5, b, kStride);
      TORCHYARD_TILE_PRODUCT(0, 4, 5);
      TORCHYARD_TILE_LOAD(6, b + 16, kStride);
      TORCHYARD_TILE_PRODUCT(1, 4, 6);
      TORCHYARD_TILE_LOAD(7, b + 32, kStride);
      TORCHYARD_TILE_PRODUCT(2, 4, 7);
      TORCHYARD_TILE_LOAD(5, b + 48, kStride);
      TORCHYARD_TILE_PRODUCT(3, 4, 5);
    }
    float* out = reinterpret_cast<float*>(&score);
    TORCHYARD_TILE_STORE(0, out, kStride);
    TORCHYARD_TILE_STORE(1, out + 16, kStride);
    TORCHYARD_TILE_STORE(2, out + 32, kStride);
    TORCHYARD_TILE_STORE(3, out + 48, kStride);
    matrix_fence();
  }

  // out [kMatrixRows][stride] += probabilities . values, over whole panels, in kGroup vectors of
  // columns.
  template <int kGroup>
  static void values(float* out, int64_t stride, const uint32_t* const* packed_values,
                     int64_t offset, const TilePanel<kMatrixRows>*, int panels,
                     const uint32_t* probabilities) {
    using L = Layout<AmxFormat>;
    constexpr int64_t kColumns = int64_t{kGroup} * AmxIsa::kLanes;
    constexpr size_t kValueStride = kColumns * sizeof(uint32_t);
    constexpr size_t kStripStride = L::kStripStride * sizeof(uint32_t);
    const size_t sum_stride = static_cast<size_t>(stride) * sizeof(float);
    matrix_fence();
    TORCHYARD_TILE_LOAD(0, out, sum_stride);
    if constexpr (kGroup > 1) TORCHYARD_TILE_LOAD(1, out + 16, sum_stride);
    if constexpr (kGroup > 2) TORCHYARD_TILE_LOAD(2, out + 32, sum_stride);
    if constexpr (kGroup > 3) TORCHYARD_TILE_LOAD(3, out + 48, sum_stride);
    for (int p = 0; p < panels; ++p) {
      for (int w = 0; w < L::kPanelWords; w += kMatrixWords) {
        const uint32_t* b = packed_values[p] + offset + w * kColumns;
        TORCHYARD_TILE_LOAD(4, probabilities + p * L::kPanelWords + w, kStripStride);
        TORCHYARD_TILE_LOAD(5, b, kValueStride);
        TORCHYARD_TILE_PRODUCT(0, 4, 5);
        if constexpr (kGroup > 1) {
          TORCHYARD_TILE_LOAD(6, b + 16, kValueStride);
          TORCHYARD_TILE_PRODUCT(1, 4, 6);
        }
        if constexpr (kGroup > 2) {
          TORCHYARD_TILE_LOAD(7, b + 32, kValueStride);
          TORCHYARD_TILE_PRODUCT(2, 4, 7);
        }
        if constexpr (kGroup > 3) {
          TORCHYARD_TILE_LOAD(5, b + 48, kValueStride);
          TORCHYARD_TILE_PRODUCT(3, 4, 5);
        }
      }
    }
    TORCHYARD_TILE_STORE(0, out, sum_stride);
    if constexpr (kGroup > 1) TORCHYARD_TILE_STORE(1, out + 16, sum_stride);
    if constexpr (kGroup > 2) TORCHYARD_TILE_STORE(2, out + 32, sum_stride);
    if constexpr (kGroup > 3) TORCHYARD_TILE_STORE(3, out + 48, sum_stride);
    matrix_fence();
  }
};

}  // namespace
}  // namespace torchyard

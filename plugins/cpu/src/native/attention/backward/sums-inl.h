// Sums over rows that belong to keys: dkey^T and dvalue^T of a panel.
#pragma once

#include <cstdint>

#include "attention/backward/layout.h"
#include "attention/tile/micro_kernel-inl.h"

namespace torchyard {
namespace {

template <class Format>
struct KeySums {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using Element = typename Format::Element;
  using L = Layout<Format>;
  static constexpr int kVectors = Isa::kTileVectors;

  // sum(c, :) += over w < count of left(w, c) . right(w, :) for c < size, with left [w][stride],
  // right [w][kTileKeys] and sum [c][kTileKeys].
  static void add(const uint32_t* left, int64_t stride, int64_t size, const uint32_t* right,
                  int64_t count, float* sum) {
    int64_t c = 0;
    for (; size - c > 4; c += 6) tile<6>(left + c, stride, right, count, sum + c * L::kTileKeys);
    if (size - c > 2) {
      tile<4>(left + c, stride, right, count, sum + c * L::kTileKeys);
    } else if (size - c > 0) {
      tile<2>(left + c, stride, right, count, sum + c * L::kTileKeys);
    }
  }

  // The same for one row and the keys that it sees alone: 0 * NaN is NaN, so where a row is not
  // finite only visible pairs may take part. `right` and `sum` are the panel's, with sub-panels
  // `right_stride` and `sum_stride` words apart.
  static void add_visible(const uint32_t* left, int64_t size, int half, const uint32_t* right,
                          int64_t right_stride, uint64_t visible, float* sum, int64_t sum_stride) {
    for (int key = 0; key < kPanelKeys; ++key) {
      if (((visible >> key) & 1) == 0) continue;
      const int sub = key / L::kTileKeys;
      const int lane = key % L::kTileKeys;
      const float factor = Format::unpack(right[sub * right_stride + lane], half);
      float* column = sum + sub * sum_stride + lane;
      for (int64_t c = 0; c < size; ++c) {
        column[c * L::kTileKeys] += factor * Format::unpack(left[c], half);
      }
    }
  }

  // Writes factor * sum^T of a panel's first `count` keys to rows of `size` elements.
  static void write(const float* sum, int64_t sum_stride, int64_t size, float factor, int64_t count,
                    Element* out, int64_t row_stride) {
    const Vec scale = Isa::set1(factor);
    for (int64_t key = 0; key < count; key += Isa::kLanes) {
      const float* from = sum + key / L::kTileKeys * sum_stride + key % L::kTileKeys;
      const int64_t keys = count - key < Isa::kLanes ? count - key : Isa::kLanes;
      for (int64_t c = 0; c < size; c += Isa::kLanes) {
        Vec block[Isa::kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < Isa::kLanes; ++i) {
          block[i] = Isa::mul(Isa::load(from + (c + i) * L::kTileKeys), scale);
        }
        Isa::transpose(block);
        const int n = static_cast<int>(size - c < Isa::kLanes ? size - c : Isa::kLanes);
        for (int64_t i = 0; i < keys; ++i) {
          Isa::store_first(out + (key + i) * row_stride + c, block[i], n);
        }
      }
    }
  }

 private:
  template <int kRows>
  static TORCHYARD_NOINLINE void tile(const uint32_t* left, int64_t stride, const uint32_t* right,
                                      int64_t count, float* sum) {
    Vec total[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        total[r][j] = Isa::load(sum + r * L::kTileKeys + j * Isa::kLanes);
      }
    }
    // One word of `left` at a time: its stride is not a constant.
    for (int64_t w = 0; w < count; ++w) {
      accumulate<Format, 1, 1>(total, left, right, 1);
      left += stride;
      right += L::kTileKeys;
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        Isa::store(sum + r * L::kTileKeys + j * Isa::kLanes, total[r][j]);
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

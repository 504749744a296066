// Adds probabilities times values to a tile.
#pragma once

#include <cstdint>

#include "attention/tile/micro_kernel-inl.h"
#include "attention/tile/tile-inl.h"
#include "attention/tile/visibility-inl.h"

namespace torchyard {
namespace {

template <class Format, int kRows>
struct Values {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using L = Layout<Format>;
  using Keys = TilePanel<kRows>;

  // sum_v += probabilities . values over what is seen of a strip's panels.
  static void add(const L& layout, const Tile<Format>& tile, const uint32_t* const* packed_values,
                  const Keys* keys, int panels, const uint32_t* probabilities) {
    for (int64_t g = 0; g < layout.column_groups; ++g) {
      const int64_t start = layout.group_start(g);
      const int64_t width = layout.group_start(g + 1) - start;
      if constexpr (Isa::kTileVectors >= 4) {
        if (width == 4) group<4>(layout, tile, start, packed_values, keys, panels, probabilities);
        if (width == 3) group<3>(layout, tile, start, packed_values, keys, panels, probabilities);
      }
      if (width == 2) group<2>(layout, tile, start, packed_values, keys, panels, probabilities);
      if (width == 1) group<1>(layout, tile, start, packed_values, keys, panels, probabilities);
    }
  }

  // The same where a value is not finite and some rows do not see its key: 0 * NaN is NaN, so only
  // visible keys may take part. One multiplication at a time; such inputs are rare.
  static void add_visible(const L& layout, const Tile<Format>& tile, const uint32_t* packed_values,
                          const Keys& keys, const uint32_t* probabilities) {
    for (int r = 0; r < kRows; ++r) {
      for (int key = 0; key < kPanelKeys; ++key) {
        if (((keys.word[r] >> key) & 1) == 0) continue;
        const int word = key / Format::kPair;
        const int half = key % Format::kPair;
        const float p = Format::unpack(probabilities[r * L::kStripStride + word], half);
        for (int64_t g = 0; g < layout.column_groups; ++g) {
          const int64_t start = layout.group_start(g) * Isa::kLanes;
          const int64_t width = layout.group_start(g + 1) * Isa::kLanes - start;
          const uint32_t* values = packed_values + start * L::kPanelWords + word * width;
          float* out = tile.sum_v + r * layout.value_columns + start;
          for (int64_t j = 0; j < width; ++j) out[j] += p * Format::unpack(values[j], half);
        }
      }
    }
  }

 private:
  template <int kVectors>
  static TORCHYARD_NOINLINE void group(const L& layout, const Tile<Format>& tile, int64_t start,
                                       const uint32_t* const* packed_values, const Keys* keys,
                                       int panels, const uint32_t* probabilities) {
    Products<Format, kRows>::template values<kVectors>(
        tile.sum_v + start * Isa::kLanes, layout.value_columns, packed_values,
        start * Isa::kLanes * L::kPanelWords, keys, panels, probabilities);
  }
};

}  // namespace
}  // namespace torchyard

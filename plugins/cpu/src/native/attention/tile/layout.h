// The layout of a packed panel and of the probability strip.
//
// A packed panel holds 64 keys, then their 64 values, as words:
//   keys    [64 / kTileKeys][key_words][kTileKeys]      key_words = ceil(D / kPair)
//   values  for each column group: [64 / kPair][group width]
// A column group is what one micro-kernel call produces: 1..kTileVectors vectors wide.
#pragma once

#include <cstdint>

#include "attention/attention.h"

namespace torchyard {
namespace {

// What the words of a query's row are rounded up to; such formats keep each row's words together.
template <class Format>
constexpr int kWordStep = 1;

template <class Format>
struct Layout {
  using Isa = typename Format::Isa;
  static constexpr int kTileKeys = Isa::kTileVectors * Isa::kLanes;
  static constexpr int kSubPanels = kPanelKeys / kTileKeys;
  static constexpr int kPanelWords = kPanelKeys / Format::kPair;

  // Panels whose probabilities are held at a time. The strip stays in the first-level cache, and
  // the sums are read and written once per strip.
  static constexpr int kStripPanels = 8;
  // One row of the strip; the extra line keeps the rows out of each other's cache sets.
  static constexpr int kStripStride = kStripPanels * kPanelWords + 16;

  int64_t key_words;
  int64_t value_vectors;
  int64_t value_columns;  // value_vectors * kLanes
  int64_t column_groups;

  explicit Layout(const ForwardArgs& args)
      : key_words(words_of(args.head_dim)),
        value_vectors((args.value_dim + Isa::kLanes - 1) / Isa::kLanes),
        value_columns(value_vectors * Isa::kLanes),
        column_groups((value_vectors + Isa::kTileVectors - 1) / Isa::kTileVectors) {}

  static int64_t words_of(int64_t head_dim) {
    constexpr int64_t kStep = int64_t{Format::kPair} * kWordStep<Format>;
    return (head_dim + kStep - 1) / kStep * kWordStep<Format>;
  }

  int64_t key_panel_words() const { return key_words * kPanelKeys; }
  int64_t value_panel_words() const { return value_columns * kPanelWords; }
  int64_t panel_words() const { return key_panel_words() + value_panel_words(); }

  // Vectors before group `g`. Groups differ by at most one vector: 5 is 3 + 2, not 4 + 1, because a
  // narrow group cannot hide the latency of its few accumulators.
  int64_t group_start(int64_t g) const { return value_vectors * g / column_groups; }
};

}  // namespace
}  // namespace torchyard

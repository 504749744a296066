// A stable sort of what was selected, best first.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace torchyard {
namespace {

template <class Key>
struct TopKItem {
  std::make_unsigned_t<Key> behind;  // how far its key is behind the best one
  uint32_t index;
};

// Below this many, insertion beats counting digits.
constexpr int64_t kTopKInsertion = 48;

// Puts `index` into the order of falling keys, equal ones as they stand. `spare` is for 2 * count
// items.
template <class Key>
void topk_sort(const Key* keys, uint32_t* index, int64_t count, void* spare) {
  using Item = TopKItem<Key>;
  using Unsigned = std::make_unsigned_t<Key>;
  if (count < 2) return;
  Item* items = static_cast<Item*>(spare);
  Key best = keys[0];
  for (int64_t i = 1; i < count; ++i) best = keys[i] > best ? keys[i] : best;
  for (int64_t i = 0; i < count; ++i) {
    items[i] = {static_cast<Unsigned>(static_cast<Unsigned>(best) - static_cast<Unsigned>(keys[i])),
                index[i]};
  }
  if (count < kTopKInsertion) {
    for (int64_t i = 1; i < count; ++i) {
      const Item item = items[i];
      int64_t to = i;
      for (; to > 0 && items[to - 1].behind > item.behind; --to) items[to] = items[to - 1];
      items[to] = item;
    }
  } else {
    constexpr int kDigits = static_cast<int>(sizeof(Key));
    uint32_t counts[kDigits][256];
    std::memset(counts, 0, sizeof(counts));
    for (int64_t i = 0; i < count; ++i) {
      for (int d = 0; d < kDigits; ++d) ++counts[d][(items[i].behind >> (8 * d)) & 255];
    }
    Item* from = items;
    Item* to = items + count;
    for (int d = 0; d < kDigits; ++d) {
      uint32_t* places = counts[d];
      // A digit that all share orders nothing; in the upper ones that is common.
      if (places[(from[0].behind >> (8 * d)) & 255] == static_cast<uint32_t>(count)) continue;
      uint32_t place = 0;
      for (int v = 0; v < 256; ++v) {
        const uint32_t next = place + places[v];
        places[v] = place;
        place = next;
      }
      for (int64_t i = 0; i < count; ++i) to[places[(from[i].behind >> (8 * d)) & 255]++] = from[i];
      Item* swapped = from;
      from = to;
      to = swapped;
    }
    items = from;
  }
  for (int64_t i = 0; i < count; ++i) index[i] = items[i].index;
}

}  // namespace
}  // namespace torchyard

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

// Of a digit at most: its table stays in the first-level cache.
constexpr int kTopKDigitBits = 10;

// Puts `index` into the order of falling keys, equal ones in their order. `spare` is for 2 * count
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
    Unsigned farthest = 0;
    for (int64_t i = 0; i < count; ++i) {
      farthest = items[i].behind > farthest ? items[i].behind : farthest;
    }
    // As few digits as there are bits: what is selected lies close together.
    const int bits = farthest == 0 ? 1 : 64 - __builtin_clzll(static_cast<uint64_t>(farthest));
    const int digits = (bits + kTopKDigitBits - 1) / kTopKDigitBits;
    const int digit_bits = (bits + digits - 1) / digits;
    const uint32_t values = uint32_t{1} << digit_bits;
    uint32_t places[1 << kTopKDigitBits];
    Item* from = items;
    Item* to = items + count;
    for (int shift = 0; shift < bits; shift += digit_bits) {
      const auto digit = [&](const Item& item) {
        return static_cast<uint32_t>(item.behind >> shift) & (values - 1);
      };
      std::memset(places, 0, values * sizeof(places[0]));
      for (int64_t i = 0; i < count; ++i) ++places[digit(from[i])];
      uint32_t place = 0;
      for (uint32_t v = 0; v < values; ++v) {
        const uint32_t next = place + places[v];
        places[v] = place;
        place = next;
      }
      for (int64_t i = 0; i < count; ++i) to[places[digit(from[i])]++] = from[i];
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

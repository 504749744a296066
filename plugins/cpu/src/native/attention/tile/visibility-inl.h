// Which keys of a panel the rows of a tile see.
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "simd/format.h"

namespace torchyard {
namespace {

enum class Seen : uint8_t { kNothing, kSome, kEverything };

// Reads the words of `live` rows from `row` on (the item's numbering). Rows up to kRows that do not
// exist see nothing, and count neither way.
template <int kRows>
TORCHYARD_INLINE Seen read_words(const Panel& panel, int64_t row, int live,
                                 uint64_t (&word)[kRows]) {
  uint64_t any = 0;
  uint64_t all = ~uint64_t{0};
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    word[r] = 0;
    if (r >= live) continue;
    word[r] = panel.tail;
    if (panel.words != nullptr) {
      uint64_t bits;
      __builtin_memcpy(&bits, panel.words + (row + r) * panel.row_bytes, sizeof(bits));
      word[r] &= bits;
    }
    any |= word[r];
    all &= word[r];
  }
  if (any == 0) return Seen::kNothing;
  return all == ~uint64_t{0} ? Seen::kEverything : Seen::kSome;
}

// A panel that a tile works on, within a strip.
template <int kRows>
struct TilePanel {
  int64_t index;
  bool masked;
  uint64_t word[kRows];  // meaningful when masked
  // Keys before `first` and from `end` on are seen by no row.
  int first = 0;
  int end = kPanelKeys;
};

// Finds the first and the last key that some row sees. There is one.
template <int kRows>
TORCHYARD_INLINE void narrow(TilePanel<kRows>& keys) {
  uint64_t any = 0;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) any |= keys.word[r];
  keys.first = __builtin_ctzll(any);
  keys.end = kPanelKeys - __builtin_clzll(any);
}

}  // namespace
}  // namespace torchyard

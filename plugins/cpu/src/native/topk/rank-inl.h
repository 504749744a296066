// Sorts a few by counting, of each, those before it: no branch depends on the values.
#pragma once

#include <cstring>

#include "topk/keys-inl.h"
#include "topk/topk.h"

namespace torchyard {
namespace {

// Puts the `k` best of `count` <= kTopKFew into `index`, best first, equal ones in their order;
// where there are fewer, all of them. Reads keys up to a whole register.
template <class Keys>
void topk_rank(const typename Keys::Key* keys, uint32_t* index, int64_t count, int64_t k) {
  using Key = typename Keys::Key;
  using Vec = typename Keys::Vec;
  Key rank[kTopKFew + Keys::kLanes];
  for (int64_t i = 0; i < count; i += Keys::kLanes) {
    Vec mine;
    std::memcpy(&mine, keys + i, sizeof(mine));
    const Vec at = Keys::lanes() + static_cast<Key>(i);
    const Vec none = at ^ at;
    Vec before = none;
    for (int64_t j = 0; j < count; ++j) {
      const Vec other = none + keys[j];
      before -= (other > mine) | ((other == mine) & (at > static_cast<Key>(j)));
    }
    std::memcpy(rank + i, &before, sizeof(before));
  }
  uint32_t sorted[kTopKFew];
  for (int64_t i = 0; i < count; ++i) sorted[rank[i]] = index[i];
  std::memcpy(index, sorted, static_cast<size_t>(count < k ? count : k) * sizeof(uint32_t));
}

}  // namespace
}  // namespace torchyard

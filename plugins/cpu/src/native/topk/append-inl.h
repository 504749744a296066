// Moves the lanes that are wanted of a register to the end of a buffer, in their order.
#pragma once

#include "topk/keys-inl.h"
#include "topk/topk.h"

namespace torchyard {
namespace {

// Whether a bit is set in a register.
template <class Isa>
struct TopKAny {
  template <class Vec>
  static TORCHYARD_INLINE bool of(Vec truth) {
    uint64_t words[sizeof(Vec) / 8];
    std::memcpy(words, &truth, sizeof(truth));
    uint64_t all = 0;
    for (const uint64_t word : words) all |= word;
    return all != 0;
  }
};

// May write a register's width beyond what it appends; returns the new count.
template <class Isa, class Keys>
struct TopKAppend {
  using Vec = typename Keys::Vec;
  using Key = typename Keys::Key;

  static TORCHYARD_INLINE int64_t run(Key* keys, uint32_t* index, int64_t count, Vec key,
                                      Vec wanted, uint32_t first) {
    for (int i = 0; i < Keys::kLanes; ++i) {
      keys[count] = key[i];
      index[count] = first + static_cast<uint32_t>(i);
      count -= static_cast<int64_t>(wanted[i]);
    }
    return count;
  }

  // The same for lanes that have indices of their own, which may be those of the buffer itself.
  static TORCHYARD_INLINE int64_t move(Key* keys, uint32_t* index, int64_t count, int64_t from,
                                       Vec key, Vec wanted) {
    for (int i = 0; i < Keys::kLanes; ++i) {
      const uint32_t at = index[from + i];
      keys[count] = key[i];
      index[count] = at;
      count -= static_cast<int64_t>(wanted[i]);
    }
    return count;
  }
};

}  // namespace
}  // namespace torchyard

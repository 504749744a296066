// Drops what is not among the k best of a buffer.
#pragma once

#include <cstring>
#include <type_traits>

#include "topk/append-inl.h"
#include "topk/keys-inl.h"
#include "topk/topk.h"

namespace torchyard {
namespace {

template <class Isa, class T>
struct TopKShrinker {
  using Keys = TopKKeys<Isa, T>;
  using Append = TopKAppend<Isa, Keys>;
  using Key = typename Keys::Key;
  using Vec = typename Keys::Vec;
  using Unsigned = std::make_unsigned_t<Key>;
  static constexpr int64_t kLanes = Keys::kLanes;

  // A key that k or more of `count` reach: of all those the greatest, where `exact`, else one that
  // no more than k + more reach, which takes fewer counts to find.
  struct Cut {
    Key key;
    bool exact;
  };

  // Needs k <= count.
  static Cut cut(const Key* keys, int64_t count, int64_t k, int64_t more) {
    Key least = keys[0];
    Key greatest = keys[0];
    for (int64_t i = 0; i < count; ++i) {
      least = keys[i] < least ? keys[i] : least;
      greatest = keys[i] > greatest ? keys[i] : greatest;
    }
    // The greatest key that k or more reach is within [low, high].
    Unsigned low = raised(least);
    Unsigned high = raised(greatest);
    while (low < high) {
      const Unsigned width = high - low;
      const Unsigned middle = low + width / 2 + (width & 1);
      const int64_t reached = count_from(keys, count, lowered(middle));
      if (reached >= k) {
        low = middle;
        if (reached <= k + more) break;
      } else {
        high = middle - 1;
      }
    }
    return {lowered(low), low == high};
  }

  // Drops all but the k best, or a few more: up to `more`. Returns what a later element must exceed
  // to be among the k best. Needs k <= count.
  static Key shrink(TopKBuffer* buffer, int64_t k, int64_t more) {
    const Cut at = cut(static_cast<const Key*>(buffer->keys), buffer->count, k, more);
    keep(buffer, at.key);
    if (at.exact && buffer->count > k) drop_last(buffer, at.key, buffer->count - k);
    // Of elements that equal the k-th, those that come later rank after it. Where it is not known
    // exactly, they are appended and dropped again.
    return at.exact ? at.key : static_cast<Key>(at.key - 1);
  }

 private:
  static Unsigned raised(Key key) {
    return static_cast<Unsigned>(key) ^ (Unsigned{1} << (8 * sizeof(Key) - 1));
  }
  static Key lowered(Unsigned key) {
    return static_cast<Key>(key ^ (Unsigned{1} << (8 * sizeof(Key) - 1)));
  }

  static int64_t count_from(const Key* keys, int64_t count, Key least) {
    Key found = 0;
    for (int64_t i = 0; i < count; ++i) found += keys[i] >= least ? 1 : 0;
    return static_cast<int64_t>(found);
  }

  static void keep(TopKBuffer* buffer, Key least) {
    Key* keys = static_cast<Key*>(buffer->keys);
    int64_t count = 0;
    for (int64_t i = 0; i < buffer->count; i += kLanes) {
      Vec key;
      std::memcpy(&key, keys + i, sizeof(key));
      Vec wanted = key >= least;
      const int64_t rest = buffer->count - i;
      if (rest < kLanes) wanted &= Keys::lanes() < static_cast<Key>(rest);
      count = Append::move(keys, buffer->index, count, i, key, wanted);
    }
    buffer->count = count;
  }

  // Drops the last `surplus` of those that equal a key.
  static void drop_last(TopKBuffer* buffer, Key equal, int64_t surplus) {
    Key* keys = static_cast<Key*>(buffer->keys);
    int64_t to = buffer->count;
    for (int64_t from = buffer->count - 1; from >= 0; --from) {
      if (keys[from] == equal && surplus > 0) {
        --surplus;
        continue;
      }
      --to;
      keys[to] = keys[from];
      buffer->index[to] = buffer->index[from];
    }
    const int64_t left = buffer->count - to;
    std::memmove(keys, keys + to, static_cast<size_t>(left) * sizeof(Key));
    std::memmove(buffer->index, buffer->index + to, static_cast<size_t>(left) * sizeof(uint32_t));
    buffer->count = left;
  }
};

}  // namespace
}  // namespace torchyard

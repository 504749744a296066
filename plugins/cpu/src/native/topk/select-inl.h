// Selection, written once for all instruction sets: included by one translation unit per set.
//
// A row is read once. What is better than the threshold is appended to a buffer, in the order of
// indices; when the buffer is full, all but the k best are dropped and the threshold rises. After
// the first few thousand elements nearly none is appended, and reading is all that is left. In the
// worst order every element is: then each costs an append and its share of a shrinking.
#pragma once

#include <limits>
#include <type_traits>

#include "topk/append-inl.h"
#include "topk/filter-inl.h"
#include "topk/keys-inl.h"
#include "topk/sort-inl.h"
#include "topk/topk.h"

namespace torchyard {
namespace {

template <class Isa, class T>
class TopKSelector {
  using Keys = TopKKeys<Isa, T>;
  using Append = TopKAppend<Isa, Keys>;
  using Key = typename Keys::Key;
  using Vec = typename Keys::Vec;
  using Unsigned = std::make_unsigned_t<Key>;
  static constexpr int64_t kLanes = Keys::kLanes;

 public:
  static void select(const TopKPart& part, int64_t k, bool largest, TopKBuffer* buffer) {
    if (part.mask == nullptr) {
      largest ? read<true, false>(part, k, buffer) : read<false, false>(part, k, buffer);
    } else {
      largest ? read<true, true>(part, k, buffer) : read<false, true>(part, k, buffer);
    }
  }

  static void finish(const void* row, int64_t k, bool largest, TopKOrder order, TopKBuffer* buffer,
                     void* spare, int64_t base, void* values, int64_t* indices) {
    if (buffer->count > k) shrink(buffer, k, 0);
    const Key* keys = static_cast<const Key*>(buffer->keys);
    const int64_t found = buffer->count;
    int64_t width = k;
    int64_t from = 0;
    if (order == TopKOrder::kSorted) {
      topk_sort(keys, buffer->index, found, spare);
    } else if (order == TopKOrder::kLast) {
      width = 1;
      for (int64_t i = 1; i < found; ++i) from = keys[i] <= keys[from] ? i : from;
    }
    const T* elements = static_cast<const T*>(row);
    T* out = static_cast<T*>(values);
    const int64_t there = order == TopKOrder::kLast ? (found == k) : found;
    for (int64_t i = 0; i < there; ++i) {
      const uint32_t at = buffer->index[from + i];
      out[i] = elements[at];
      indices[i] = base + at;
    }
    const T none = absent(largest);
    for (int64_t i = there; i < width; ++i) {
      out[i] = none;
      indices[i] = -1;
    }
  }

 private:
  // The value that no element stands behind.
  static T absent(bool largest) {
    typename Keys::Bits bits;
    if constexpr (TopKElement<T>::kInfinity != 0) {
      constexpr auto kSign = std::numeric_limits<typename Keys::Bits>::min();
      bits = static_cast<typename Keys::Bits>(TopKElement<T>::kInfinity);
      if (largest) bits = static_cast<typename Keys::Bits>(bits | kSign);
    } else {
      using Limits = std::numeric_limits<typename Keys::Bits>;
      bits = largest ? Limits::min() : Limits::max();
    }
    T value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  template <bool kLargest, bool kMasked>
  static void read(const TopKPart& part, int64_t k, TopKBuffer* buffer) {
    const T* x = static_cast<const T*>(part.row);
    Key* keys = static_cast<Key*>(buffer->keys);
    uint32_t* index = buffer->index;
    const int64_t full = topk_capacity(part.end - part.begin, k);
    int64_t count = 0;
    int64_t i = part.begin;
    // Without a threshold everything that is seen is wanted.
    for (; i < part.end && count < full; i += kLanes) {
      const int64_t rest = part.end - i;
      Vec wanted = Keys::lanes() < static_cast<Key>(rest < kLanes ? rest : kLanes);
      if constexpr (kMasked) wanted &= Keys::seen(part.mask + i, rest);
      count = Append::run(keys, index, count, Keys::template load_first<kLargest>(x + i, rest),
                          wanted, static_cast<uint32_t>(i));
    }
    buffer->count = count;
    if (i >= part.end) {
      if (count > k) shrink(buffer, k, 0);
      return;
    }
    Key threshold = shrink(buffer, k, k / 8);
    count = buffer->count;
    TopKFilter<Isa, T, kLargest> filter(threshold);
    constexpr int64_t kGroup = decltype(filter)::kGroup;
    constexpr int64_t kRegister = decltype(filter)::kLanes;
    for (; i + kGroup <= part.end && !filter.nothing(); i += kGroup) {
      if (!filter.any_of_group(x + i)) continue;
      for (int64_t r = i; r < i + kGroup; r += kRegister) {
        // Where a register of elements is several of keys, they are made only where they are
        // needed.
        if (kRegister > kLanes && !filter.any_of_register(x + r)) continue;
        for (int64_t at = r; at < r + kRegister; at += kLanes) {
          const Vec key = Keys::template load<kLargest>(x + at);
          Vec wanted = key > threshold;
          if constexpr (kMasked) wanted &= Keys::seen(part.mask + at, kLanes);
          count = Append::run(keys, index, count, key, wanted, static_cast<uint32_t>(at));
        }
      }
      if (count >= full) {
        buffer->count = count;
        threshold = shrink(buffer, k, k / 8);
        count = buffer->count;
        filter = TopKFilter<Isa, T, kLargest>(threshold);
      }
    }
    for (; i < part.end && !filter.nothing(); i += kLanes) {
      const int64_t rest = part.end - i;
      const Vec key = Keys::template load_first<kLargest>(x + i, rest);
      Vec wanted = key > threshold;
      wanted &= Keys::lanes() < static_cast<Key>(rest < kLanes ? rest : kLanes);
      if constexpr (kMasked) wanted &= Keys::seen(part.mask + i, rest);
      count = Append::run(keys, index, count, key, wanted, static_cast<uint32_t>(i));
    }
    buffer->count = count;
    if (count > k) shrink(buffer, k, 0);
  }

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

  // Drops all but the k best, or a few more: up to `more`, which costs fewer counts to find.
  // Returns what a later element must exceed to be among the k best. Needs k <= count.
  static Key shrink(TopKBuffer* buffer, int64_t k, int64_t more) {
    Key* keys = static_cast<Key*>(buffer->keys);
    const int64_t count = buffer->count;
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
    const Key cut = lowered(low);
    const bool exact = low == high;
    keep(buffer, cut);
    if (exact && buffer->count > k) drop_last(buffer, cut, buffer->count - k);
    // Of elements that equal the k-th, those that come later stand behind it. Where it is not known
    // exactly, they are appended and dropped again.
    return exact ? cut : static_cast<Key>(cut - 1);
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

#define TORCHYARD_TOPK_KERNEL(Isa, isa, required, short_name, dtype, Element) \
  {"topk_" #short_name "_" #isa,                                              \
   #isa,                                                                      \
   TopKDType::dtype,                                                          \
   required,                                                                  \
   sizeof(Element),                                                           \
   sizeof(TopKElement<Element>::Key),                                         \
   TopKSelector<Isa, Element>::select,                                        \
   TopKSelector<Isa, Element>::finish}

#define TORCHYARD_DEFINE_TOPK(Isa, isa, required)                       \
  extern const TopKKernel topk_kernels_##isa[kTopKDTypes];              \
  const TopKKernel topk_kernels_##isa[kTopKDTypes] = {                  \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, f32, kFloat32, float),  \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, f64, kFloat64, double), \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, f16, kFloat16, F16),    \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, bf16, kBFloat16, Bf16), \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, u8, kUInt8, uint8_t),   \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, i8, kInt8, int8_t),     \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, i16, kInt16, int16_t),  \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, i32, kInt32, int32_t),  \
      TORCHYARD_TOPK_KERNEL(Isa, isa, required, i64, kInt64, int64_t),  \
  };

// Selection, written once for all instruction sets: included by one translation unit per set.
//
// A row is read once. What is better than the threshold is appended to a buffer, in the order of
// indices; when the buffer is full, all but the k best are dropped and the threshold rises. Nearly
// none is appended where the first threshold is good, and reading is all that is left. It comes
// from a look at a part of the row; without one the first elements fill the buffer. In the worst
// order every element is appended: then each costs that and its share of a shrinking.
#pragma once

#include <limits>
#include <type_traits>

#include "base/isa/kernel_table.h"
#include "topk/append-inl.h"
#include "topk/classes-inl.h"
#include "topk/filter-inl.h"
#include "topk/keys-inl.h"
#include "topk/rank-inl.h"
#include "topk/shrink-inl.h"
#include "topk/sort-inl.h"
#include "topk/topk.h"

namespace torchyard {
namespace {

template <class Isa, class T>
class TopKSelector {
  using Keys = TopKKeys<Isa, T>;
  using Append = TopKAppend<Isa, Keys>;
  using Shrinker = TopKShrinker<Isa, T>;
  using Key = typename Keys::Key;
  using Vec = typename Keys::Vec;
  static constexpr int64_t kLanes = Keys::kLanes;
  static constexpr int64_t kGroup = TopKFilter<Isa, T, true>::kGroup;

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
    const Key* keys = static_cast<const Key*>(buffer->keys);
    const bool few = buffer->count <= kTopKFew && order == TopKOrder::kSorted;
    if (buffer->count > k && !few) Shrinker::shrink(buffer, k, 0);
    const int64_t found = buffer->count < k ? buffer->count : k;
    int64_t width = k;
    int64_t from = 0;
    if (few) {
      topk_rank<Keys>(keys, buffer->index, buffer->count, k);
    } else if (order == TopKOrder::kSorted) {
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
  // The value of an output without an element.
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

  // Elements that bound those of a few, and that stay in the first-level cache.
  static constexpr int64_t kPrefix = 16384 / static_cast<int64_t>(sizeof(T));
  // How far ahead of the reads memory is prefetched. Of a row, elements: what the processor
  // fetches by itself ends with a page, and begins again after misses. Of a sample, groups, each of
  // which lies in a page of its own.
  static constexpr int64_t kRowAhead = 16384 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kSampleAhead = 16;
  // As many as there are classes can hardly be told from one another by them.
  static constexpr int64_t kMostOfClasses = kGroup / 4;

  // How many deviations a sample is allowed. A row in some hundreds deviates by more than the
  // first and is read again with the second, in a third of the time that it takes without a bound.
  // Beginning with the second would let a third more elements pass in every row.
  static constexpr int64_t kMargins[] = {3, 6};

  template <bool kLargest, bool kMasked>
  static void read(const TopKPart& part, int64_t k, TopKBuffer* buffer) {
    Key threshold;
    for (const int64_t roots : kMargins) {
      buffer->count = 0;
      if (kMasked || !bound<kLargest>(part, k, roots, buffer, &threshold)) break;
      buffer->count = 0;
      scan<kLargest, false>(part, part.begin, threshold, k, buffer);
      if (buffer->count >= k) return trim(buffer, k);
      // The sample said more than is true of the row.
    }
    buffer->count = 0;
    const int64_t begin = fill<kLargest, kMasked>(part, kLanes, k, buffer);
    if (begin < part.end) {
      threshold = Shrinker::shrink(buffer, k, k / 8);
      scan<kLargest, kMasked>(part, begin, threshold, k, buffer);
    }
    trim(buffer, k);
  }

  static void trim(TopKBuffer* buffer, int64_t k) {
    if (buffer->count > k && buffer->count > kTopKFew) Shrinker::shrink(buffer, k, 0);
  }

  // Finds what only the k best and few others exceed, or nothing: false. Of a sample, with a margin
  // of so many roots of what it is expected to hold.
  template <bool kLargest>
  static bool bound(const TopKPart& part, int64_t k, int64_t roots, TopKBuffer* buffer,
                    Key* threshold) {
    const int64_t length = part.end - part.begin;
    Key* keys = static_cast<Key*>(buffer->keys);
    typename Shrinker::Cut cut;
    if (k <= kMostOfClasses && length >= 8 * kGroup) {
      const int64_t looked = (length < kPrefix ? length : kPrefix) / kGroup * kGroup;
      T best[kGroup];
      TopKClasses<Isa, T, kLargest>::find(static_cast<const T*>(part.row) + part.begin, looked,
                                          best);
      Key of[kGroup];
      for (int64_t i = 0; i < kGroup; i += kLanes) {
        const Vec key = Keys::template load<kLargest>(best + i);
        std::memcpy(of + i, &key, sizeof(key));
      }
      cut = Shrinker::cut(of, kGroup, k, k);
    } else {
      // One group of so many; a sample holds `expected` of the k best, with a deviation of its
      // root. Of `wanted` that many are expected not to be among the k best.
      const int64_t apart = k >= 256 ? 32 : k >= 128 ? k / 8 : 16;
      const int64_t expected = k / apart;
      int64_t root = 1;
      while (root * root < expected) ++root;
      const int64_t wanted = expected + roots * root + 1;
      if (length < 16 * apart * wanted) return false;
      const int64_t begin = fill<kLargest, false>(part, apart * kGroup, wanted, buffer);
      if (begin >= part.end) return false;
      const Key first = Shrinker::shrink(buffer, wanted, wanted / 8);
      scan<kLargest, false>(part, begin, first, wanted, buffer, apart * kGroup);
      cut = Shrinker::cut(keys, buffer->count, wanted, 0);
    }
    if (cut.key == std::numeric_limits<Key>::min()) return false;
    *threshold = static_cast<Key>(cut.key - 1);
    return true;
  }

  // Appends all that is seen, until the buffer is full; `step` from one group to the next. Returns
  // where it ended.
  template <bool kLargest, bool kMasked>
  static int64_t fill(const TopKPart& part, int64_t step, int64_t k, TopKBuffer* buffer) {
    const T* x = static_cast<const T*>(part.row);
    const int64_t full = topk_capacity(part.end - part.begin, k);
    const int64_t width = step == kLanes ? kLanes : kGroup;
    int64_t i = part.begin;
    for (; i < part.end && buffer->count < full; i += step) {
      if (step != kLanes) ask(x + i + kSampleAhead * step);
      for (int64_t at = i; at < i + width && at < part.end; at += kLanes) {
        const int64_t rest = part.end - at;
        Vec wanted = Keys::lanes() < static_cast<Key>(rest < kLanes ? rest : kLanes);
        if constexpr (kMasked) wanted &= Keys::seen(part.mask + at, rest);
        append(buffer, Keys::template load_first<kLargest>(x + at, rest), wanted, at);
      }
    }
    return i;
  }

  // Asks for the lines of a group. Beyond the end it does no harm: none is read.
  static TORCHYARD_INLINE void ask(const T* group) {
    const char* at = reinterpret_cast<const char*>(group);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kGroup * static_cast<int64_t>(sizeof(T)); i += 64) {
      __builtin_prefetch(at + i, 0, 2);
    }
  }

  static TORCHYARD_INLINE void append(TopKBuffer* buffer, Vec key, Vec wanted, int64_t at) {
    buffer->count = Append::run(static_cast<Key*>(buffer->keys), buffer->index, buffer->count, key,
                                wanted, static_cast<uint32_t>(at));
  }

  // Appends what exceeds the threshold, which rises; of every group, and of what is left after the
  // last, or of a group in each `step` alone.
  template <bool kLargest, bool kMasked>
  static void scan(const TopKPart& part, int64_t begin, Key threshold, int64_t k,
                   TopKBuffer* buffer, int64_t step = kGroup) {
    const T* x = static_cast<const T*>(part.row);
    TopKBuffer to = *buffer;
    const int64_t full = topk_capacity(part.end - part.begin, k);
    int64_t i = begin;
    TopKFilter<Isa, T, kLargest> filter(threshold);
    constexpr int64_t kRegister = decltype(filter)::kLanes;
    const int64_t ahead = step == kGroup ? kRowAhead : kSampleAhead * step;
    for (; i + kGroup <= part.end && !filter.nothing(); i += step) {
      ask(x + i + ahead);
      if (!filter.any_of_group(x + i)) continue;
      for (int64_t r = i; r < i + kGroup; r += kRegister) {
        // Where a register of elements is several of keys, they are made only where they are
        // needed.
        if (kRegister > kLanes && !filter.any_of_register(x + r)) continue;
        for (int64_t at = r; at < r + kRegister; at += kLanes) {
          const Vec key = Keys::template load<kLargest>(x + at);
          Vec wanted = key > threshold;
          if constexpr (kMasked) wanted &= Keys::seen(part.mask + at, kLanes);
          append(&to, key, wanted, at);
        }
      }
      if (to.count >= full) {
        threshold = Shrinker::shrink(&to, k, k / 8);
        filter = TopKFilter<Isa, T, kLargest>(threshold);
      }
    }
    for (; step == kGroup && i < part.end && !filter.nothing(); i += kLanes) {
      const int64_t rest = part.end - i;
      const Vec key = Keys::template load_first<kLargest>(x + i, rest);
      Vec wanted = key > threshold;
      wanted &= Keys::lanes() < static_cast<Key>(rest < kLanes ? rest : kLanes);
      if constexpr (kMasked) wanted &= Keys::seen(part.mask + i, rest);
      append(&to, key, wanted, i);
    }
    *buffer = to;
  }
};

}  // namespace
}  // namespace torchyard

#define TORCHYARD_TOPK(Isa, set, shape, dtype, Element) \
  {"topk_" #shape "_" #set,                             \
   #set,                                                \
   TopKDType::dtype,                                    \
   isa::set.required,                                   \
   sizeof(Element),                                     \
   sizeof(TopKElement<Element>::Key),                   \
   TopKSelector<Isa, Element>::select,                  \
   TopKSelector<Isa, Element>::finish}

// The kernels of all dtypes.
#define TORCHYARD_TOPK_KERNELS(Isa, set)                                                   \
  TORCHYARD_KERNELS(topk, TopKKernel, set, TORCHYARD_TOPK(Isa, set, f32, kFloat32, float), \
                    TORCHYARD_TOPK(Isa, set, f64, kFloat64, double),                       \
                    TORCHYARD_TOPK(Isa, set, f16, kFloat16, F16),                          \
                    TORCHYARD_TOPK(Isa, set, bf16, kBFloat16, Bf16),                       \
                    TORCHYARD_TOPK(Isa, set, u8, kUInt8, uint8_t),                         \
                    TORCHYARD_TOPK(Isa, set, i8, kInt8, int8_t),                           \
                    TORCHYARD_TOPK(Isa, set, i16, kInt16, int16_t),                        \
                    TORCHYARD_TOPK(Isa, set, i32, kInt32, int32_t),                        \
                    TORCHYARD_TOPK(Isa, set, i64, kInt64, int64_t))

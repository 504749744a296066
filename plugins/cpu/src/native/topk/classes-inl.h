// The best of each class of a row's elements, where an element's class is its place in a group of
// the filter.
//
// The k-th best of any elements of a row bounds the k-th best of the row. These are many that are
// good, at four operations per register, so that few others pass their k-th.
#pragma once

#include <cstring>

#include "topk/filter-inl.h"
#include "topk/keys-inl.h"

namespace torchyard {
namespace {

template <class Isa, class T, bool kLargest>
class TopKClasses {
  using Element = TopKElement<T>;
  using Bits = typename Element::Bits;
  static constexpr int64_t kLanes = TopKFilter<Isa, T, kLargest>::kLanes;
  typedef Bits Vec __attribute__((vector_size(kLanes * sizeof(Bits))));

 public:
  static constexpr int64_t kClasses = TopKFilter<Isa, T, kLargest>::kGroup;

  // Of `count` elements, whole groups, to `best`, one per class. A NaN with the sign set counts as
  // the least number of all, where its key is another: it may stand for its class by mistake, and
  // not be found for it, but whatever stands for a class is an element.
  static void find(const T* x, int64_t count, T* best) {
    Vec a = load(x), b = load(x + kLanes);
    Vec c = load(x + 2 * kLanes), d = load(x + 3 * kLanes);
    for (int64_t i = kClasses; i < count; i += kClasses) {
      a = better(a, load(x + i));
      b = better(b, load(x + i + kLanes));
      c = better(c, load(x + i + 2 * kLanes));
      d = better(d, load(x + i + 3 * kLanes));
    }
    store(best, a);
    store(best + kLanes, b);
    store(best + 2 * kLanes, c);
    store(best + 3 * kLanes, d);
  }

 private:
  // Bits whose order as whole numbers is that of the elements, and back: it is its own inverse.
  static TORCHYARD_INLINE Vec turned(Vec bits) {
    if constexpr (Element::kInfinity != 0) {
      constexpr int kSign = 8 * static_cast<int>(sizeof(Bits)) - 1;
      constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << kSign));
      bits ^= (bits >> kSign) & kMagnitude;
    }
    return bits;
  }
  static TORCHYARD_INLINE Vec load(const T* p) {
    Vec bits;
    std::memcpy(&bits, p, sizeof(bits));
    return turned(bits);
  }
  static TORCHYARD_INLINE void store(T* p, Vec order) {
    const Vec bits = turned(order);
    std::memcpy(p, &bits, sizeof(bits));
  }
  static TORCHYARD_INLINE Vec better(Vec a, Vec b) {
    return kLargest ? (a > b ? a : b) : (a < b ? a : b);
  }
};

}  // namespace
}  // namespace torchyard

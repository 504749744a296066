// Whether anything in a stretch of a row can be better than the threshold.
//
// What is better is a range of an element's bits, as unsigned numbers that wrap around: for the
// greatest floating-point numbers one more, the NaNs with the sign set. So three operations per
// register decide, at the width of the elements; a key takes eight, at four bytes. What passes by
// mistake, such as those NaNs where the least are wanted, is dropped by its key.
#pragma once

#include <limits>
#include <type_traits>

#include "topk/append-inl.h"
#include "topk/keys-inl.h"

namespace torchyard {
namespace {

template <class Isa, class T, bool kLargest>
class TopKFilter {
  using Element = TopKElement<T>;
  using Bits = typename Element::Bits;
  using Key = typename Element::Key;
  using Unsigned = std::make_unsigned_t<Bits>;
  static constexpr bool kFloat = Element::kInfinity != 0;
  static constexpr Unsigned kSign = static_cast<Unsigned>(Unsigned{1} << (8 * sizeof(Bits) - 1));
  static constexpr Unsigned kNegativeNan = static_cast<Unsigned>(kSign | Element::kInfinity);

 public:
  // Elements in a register, and between two branches.
  static constexpr int64_t kLanes = Isa::kLanes * 4 / static_cast<int64_t>(sizeof(Bits));
  static constexpr int64_t kGroup = 4 * kLanes;

  explicit TopKFilter(Key threshold) {
    if constexpr (kFloat && kLargest) {
      nothing_ = threshold >= static_cast<Key>(kSign - 1);
      // Only NaNs exceed infinity, whatever their bits are.
      if (threshold > static_cast<Key>(Element::kInfinity)) threshold = Element::kInfinity;
      set(threshold >= 0 ? static_cast<Unsigned>(static_cast<Unsigned>(threshold) + 1)
                         : Unsigned{0},
          threshold >= 0 ? static_cast<Unsigned>(kSign - 1)
                         : static_cast<Unsigned>(kSign - static_cast<Unsigned>(threshold) - 1));
    } else if constexpr (kFloat) {
      const Key below = ~threshold;
      set(below > 0 ? kSign
                    : static_cast<Unsigned>(
                          kSign + static_cast<Unsigned>(~static_cast<Unsigned>(below)) + 2),
          below > 0 ? static_cast<Unsigned>(below - 1) : static_cast<Unsigned>(~Unsigned{0}));
    } else if constexpr (kLargest) {
      nothing_ = threshold >= static_cast<Key>(std::numeric_limits<Bits>::max());
      set(static_cast<Unsigned>(static_cast<Unsigned>(threshold) + 1),
          std::numeric_limits<Bits>::max());
    } else {
      const Key below = ~threshold;
      nothing_ = below <= static_cast<Key>(std::numeric_limits<Bits>::min());
      set(std::numeric_limits<Bits>::min(),
          static_cast<Unsigned>(static_cast<Unsigned>(below) - 1));
    }
  }

  // Whether no element at all can pass.
  bool nothing() const { return nothing_; }

  TORCHYARD_INLINE bool any_of_group(const T* p) const {
    const Vec a = load(p), b = load(p + kLanes);
    const Vec c = load(p + 2 * kLanes), d = load(p + 3 * kLanes);
    const Vec near = lesser(lesser(a - from_, b - from_), lesser(c - from_, d - from_));
    if constexpr (kFloat && kLargest) {
      return any((near <= width_) | (greater(greater(a, b), greater(c, d)) > kNegativeNan));
    }
    return any(near <= width_);
  }

  TORCHYARD_INLINE bool any_of_register(const T* p) const {
    const Vec a = load(p);
    if constexpr (kFloat && kLargest) return any((a - from_ <= width_) | (a > kNegativeNan));
    return any(a - from_ <= width_);
  }

 private:
  typedef Unsigned Vec __attribute__((vector_size(kLanes * sizeof(Bits))));

  template <class From, class To>
  void set(From from, To to) {
    from_ = static_cast<Unsigned>(from);
    width_ = static_cast<Unsigned>(static_cast<Unsigned>(to) - from_);
  }

  static TORCHYARD_INLINE Vec load(const T* p) {
    Vec v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static TORCHYARD_INLINE Vec lesser(Vec a, Vec b) { return a < b ? a : b; }
  static TORCHYARD_INLINE Vec greater(Vec a, Vec b) { return a > b ? a : b; }
  template <class Truth>
  static TORCHYARD_INLINE bool any(Truth truth) {
    return TopKAny<Isa>::of(truth);
  }

  Unsigned from_;
  Unsigned width_;
  bool nothing_ = false;
};

}  // namespace
}  // namespace torchyard

// Elements as integers that have their order, so that one comparison works for every dtype.
//
// A key is signed, and greater where the element is better. -0.0 has the key of 0.0, and every NaN
// the greatest of all. For the least elements a key's bits are inverted.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/element.h"

namespace torchyard {
namespace {

#define TORCHYARD_INLINE inline __attribute__((always_inline))

// The whole numbers that an element's bits are, how wide its keys are, and, of floating point, the
// bits of infinity; 0 for integers.
template <class T>
struct TopKElement {
  using Bits = T;
  using Key = int32_t;
  static constexpr int32_t kInfinity = 0;
};
template <>
struct TopKElement<int64_t> {
  using Bits = int64_t;
  using Key = int64_t;
  static constexpr int64_t kInfinity = 0;
};
template <>
struct TopKElement<float> {
  using Bits = int32_t;
  using Key = int32_t;
  static constexpr int32_t kInfinity = 0x7f800000;
};
template <>
struct TopKElement<double> {
  using Bits = int64_t;
  using Key = int64_t;
  static constexpr int64_t kInfinity = 0x7ff0000000000000;
};
template <>
struct TopKElement<F16> {
  using Bits = int16_t;
  using Key = int32_t;
  static constexpr int32_t kInfinity = 0x7c00;
};
template <>
struct TopKElement<Bf16> {
  using Bits = int16_t;
  using Key = int32_t;
  static constexpr int32_t kInfinity = 0x7f80;
};

// A register of keys, on the compiler's vector types.
template <class Isa, class T>
struct TopKKeys {
  using Bits = typename TopKElement<T>::Bits;
  using Key = typename TopKElement<T>::Key;
  static constexpr int kLanes = Isa::kLanes * 4 / static_cast<int>(sizeof(Key));
  typedef Key Vec __attribute__((vector_size(kLanes * sizeof(Key))));
  typedef Bits Narrow __attribute__((vector_size(kLanes * sizeof(Bits))));
  typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

  // Of one number or of a register; truth is 0 or -1 there.
  template <bool kLargest>
  static TORCHYARD_INLINE Vec of(Vec bits) {
    Vec key = bits;
    if constexpr (TopKElement<T>::kInfinity != 0) {
      constexpr int kSign = 8 * static_cast<int>(sizeof(Key)) - 1;
      constexpr Key kMagnitude = sizeof(Bits) == 2 ? Key{0x7fff} : ~(Key{1} << kSign);
      const Vec negative = bits >> kSign;
      const Vec magnitude = bits & kMagnitude;
      const Vec nan = magnitude > TopKElement<T>::kInfinity;
      key = (magnitude ^ negative) - negative;
      key = (key & ~nan) | (nan & kMagnitude);
    }
    return kLargest ? key : ~key;
  }

  template <bool kLargest>
  static TORCHYARD_INLINE Vec load(const T* p) {
    Narrow narrow;
    std::memcpy(&narrow, p, sizeof(narrow));
    return of<kLargest>(__builtin_convertvector(narrow, Vec));
  }

  // The first `n` elements, 0 after them; reads nothing beyond them.
  template <bool kLargest>
  static TORCHYARD_INLINE Vec load_first(const T* p, int64_t n) {
    if (n >= kLanes) return load<kLargest>(p);
    Bits copy[kLanes] = {};
    std::memcpy(copy, p, static_cast<size_t>(n) * sizeof(Bits));
    Narrow narrow;
    std::memcpy(&narrow, copy, sizeof(narrow));
    return of<kLargest>(__builtin_convertvector(narrow, Vec));
  }

  // -1 where a byte of the mask is not 0.
  static TORCHYARD_INLINE Vec seen(const uint8_t* mask, int64_t n) {
    Bytes bytes;
    if (n >= kLanes) {
      std::memcpy(&bytes, mask, sizeof(bytes));
    } else {
      uint8_t copy[kLanes] = {};
      std::memcpy(copy, mask, static_cast<size_t>(n));
      std::memcpy(&bytes, copy, sizeof(bytes));
    }
    return __builtin_convertvector(bytes, Vec) != 0;
  }

  static TORCHYARD_INLINE Vec lanes() {
    Vec v;
    for (int i = 0; i < kLanes; ++i) v[i] = static_cast<Key>(i);
    return v;
  }
};

}  // namespace
}  // namespace torchyard

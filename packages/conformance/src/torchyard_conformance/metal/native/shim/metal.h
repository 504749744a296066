// What <metal_stdlib> is to a kernel here, and what the generated launches need.
#pragma once
#include "atomics.h"

namespace metal {
template <class T, size_t N>
struct array {
  T elements[N];
  TORCHYARD_INLINE T& operator[](size_t i) { return elements[i]; }
  TORCHYARD_INLINE const T& operator[](size_t i) const { return elements[i]; }
  static constexpr size_t size() { return N; }
};
}  // namespace metal

namespace torchyard_metal {

// A position as the kernel declares it: one number or a vector of two or three, of any integer.
template <class T>
struct Positions {
  static T of(Place place) { return static_cast<T>(position(place, 0)); }
};
template <class T>
struct Positions<metal::vec<T, 2>> {
  static metal::vec<T, 2> of(Place place) {
    return {static_cast<T>(position(place, 0)), static_cast<T>(position(place, 1))};
  }
};
template <class T>
struct Positions<metal::vec<T, 3>> {
  static metal::vec<T, 3> of(Place place) {
    return {static_cast<T>(position(place, 0)), static_cast<T>(position(place, 1)),
            static_cast<T>(position(place, 2))};
  }
};

// A parameter by reference, or a structure by value, is what a buffer begins with.
template <class T>
struct Argument {
  static T of(void* memory) { return *static_cast<metal::remove_cv_t<T>*>(memory); }
};
template <class T>
struct Argument<T&> {
  static T& of(void* memory) { return *static_cast<T*>(memory); }
};
template <class T>
struct Argument<T*> {
  static T* of(void* memory) { return static_cast<T*>(memory); }
};

template <class T>
struct Pointee {
  using type = T;
};
template <class T>
struct Pointee<T*> {
  using type = metal::remove_cv_t<T>;
};
template <class T>
struct Pointee<T&> {
  using type = metal::remove_cv_t<T>;
};
template <class T>
using pointee_t = typename Pointee<T>::type;

// The element of an array, of any number of dimensions.
template <class T>
struct Element {
  using type = T;
};
template <class T, size_t N>
struct Element<T[N]> {
  using type = typename Element<T>::type;
};
template <class T>
using element_t = typename Element<T>::type;

// Bytes of the smallest part of a type: of a structure what its alignment allows.
template <class T>
inline constexpr unsigned scalar_v = alignof(T) < 4 ? alignof(T) : 4;
template <class T, int N>
inline constexpr unsigned scalar_v<metal::vec<T, N>> = scalar_v<T>;

}  // namespace torchyard_metal

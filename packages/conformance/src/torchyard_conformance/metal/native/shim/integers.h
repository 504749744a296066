// Functions of metal_stdlib on integers.
#pragma once
#include "functions.h"

namespace metal {

template <class T>
TORCHYARD_INLINE T abs(T x) {
  if constexpr (count_v<T> > 1) {
    T result;
    for (int i = 0; i < count_v<T>; i++) result.parts[i] = abs(x.parts[i]);
    return result;
  } else if constexpr (is_integral_v<T>) {
    return x < T(0) ? T(-x) : x;
  } else {
    return fabs(x);
  }
}

template <class T>
TORCHYARD_INLINE T popcount(T x) {
  return static_cast<T>(
      __builtin_popcountll(static_cast<ulong>(x) & (~0ull >> (64 - 8 * sizeof(T)))));
}
template <class T>
TORCHYARD_INLINE T clz(T x) {
  const ulong whole = static_cast<ulong>(x) & (~0ull >> (64 - 8 * sizeof(T)));
  return static_cast<T>(whole ? __builtin_clzll(whole) - (64 - 8 * sizeof(T)) : 8 * sizeof(T));
}
template <class T>
TORCHYARD_INLINE T ctz(T x) {
  const ulong whole = static_cast<ulong>(x);
  return static_cast<T>(whole ? __builtin_ctzll(whole) : 8 * sizeof(T));
}
template <class T>
TORCHYARD_INLINE T reverse_bits(T x) {
  T result = 0;
  for (uint i = 0; i < 8 * sizeof(T); i++) result |= ((x >> i) & T(1)) << (8 * sizeof(T) - 1 - i);
  return result;
}
template <class T>
TORCHYARD_INLINE T rotate(T x, T by) {
  const uint bits = 8 * sizeof(T), shift = static_cast<uint>(by) % bits;
  const ulong whole = static_cast<ulong>(x) & (~0ull >> (64 - bits));
  return static_cast<T>(shift ? (whole << shift) | (whole >> (bits - shift)) : whole);
}
template <class T>
TORCHYARD_INLINE T extract_bits(T x, uint offset, uint bits) {
  const uint above = 8 * sizeof(T) - bits;
  return bits ? static_cast<T>(static_cast<T>(x << (above - offset)) >> above) : T(0);
}
template <class T>
TORCHYARD_INLINE T insert_bits(T base, T inserted, uint offset, uint bits) {
  const ulong mask = (bits >= 64 ? ~0ull : (1ull << bits) - 1) << offset;
  return static_cast<T>((static_cast<ulong>(base) & ~mask) |
                        ((static_cast<ulong>(inserted) << offset) & mask));
}
TORCHYARD_INLINE int mulhi(int a, int b) { return static_cast<int>((long(a) * long(b)) >> 32); }
TORCHYARD_INLINE uint mulhi(uint a, uint b) {
  return static_cast<uint>((ulong(a) * ulong(b)) >> 32);
}
TORCHYARD_INLINE ulong mulhi(ulong a, ulong b) {
  return static_cast<ulong>((static_cast<unsigned __int128>(a) * b) >> 64);
}
TORCHYARD_INLINE int mul24(int a, int b) { return a * b; }
TORCHYARD_INLINE uint mul24(uint a, uint b) { return a * b; }
TORCHYARD_INLINE int mad24(int a, int b, int c) { return a * b + c; }
TORCHYARD_INLINE uint mad24(uint a, uint b, uint c) { return a * b + c; }
template <class T>
TORCHYARD_INLINE T absdiff(T a, T b) {
  return a < b ? T(b - a) : T(a - b);
}
template <class T>
TORCHYARD_INLINE T addsat(T a, T b) {
  T result;
  if (!__builtin_add_overflow(a, b, &result)) return result;
  return a < T(0) ? numeric_limits<T>::min() : numeric_limits<T>::max();
}
template <class T>
TORCHYARD_INLINE T subsat(T a, T b) {
  T result;
  if (!__builtin_sub_overflow(a, b, &result)) return result;
  return a < b ? numeric_limits<T>::min() : numeric_limits<T>::max();
}

}  // namespace metal

// Atomic operations, all of relaxed order.
#pragma once
#include "matrix.h"

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
  T value;
};
using atomic_bool = atomic<bool>;
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_ulong = atomic<ulong>;
using atomic_float = atomic<float>;

template <class A>
using Value = decltype(A::value);

template <class T>
TORCHYARD_UNCHECKED T atomic_load_explicit(const volatile atomic<T>* at, memory_order) {
  torchyard_metal::atomic_access(at, sizeof(T), false);
  return at->value;
}
template <class T, class U>
TORCHYARD_UNCHECKED void atomic_store_explicit(volatile atomic<T>* at, U value, memory_order) {
  torchyard_metal::atomic_access(at, sizeof(T), true);
  at->value = static_cast<T>(value);
}
#define TORCHYARD_FETCH(name, expression)                                                \
  template <class T, class U>                                                            \
  TORCHYARD_UNCHECKED T name##_explicit(volatile atomic<T>* at, U given, memory_order) { \
    torchyard_metal::atomic_access(at, sizeof(T), true);                                 \
    const T a = at->value, b = static_cast<T>(given);                                    \
    at->value = static_cast<T>(expression);                                              \
    return a;                                                                            \
  }
TORCHYARD_FETCH(atomic_exchange, b)
TORCHYARD_FETCH(atomic_fetch_add, a + b)
TORCHYARD_FETCH(atomic_fetch_sub, a - b)
TORCHYARD_FETCH(atomic_fetch_and, a& b)
TORCHYARD_FETCH(atomic_fetch_or, a | b)
TORCHYARD_FETCH(atomic_fetch_xor, a ^ b)
TORCHYARD_FETCH(atomic_fetch_max, a < b ? b : a)
TORCHYARD_FETCH(atomic_fetch_min, b < a ? b : a)
#undef TORCHYARD_FETCH

template <class T, class U>
TORCHYARD_UNCHECKED bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* at, T* expected,
                                                               U desired, memory_order,
                                                               memory_order) {
  torchyard_metal::atomic_access(at, sizeof(T), true);
  const T found = at->value;
  if (__builtin_memcmp(&found, expected, sizeof(T)) == 0 && !torchyard_metal::fails_spuriously()) {
    at->value = static_cast<T>(desired);
    return true;
  }
  *expected = found;
  return false;
}

}  // namespace metal

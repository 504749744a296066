// vec<T, N>: sizes and alignments are Metal's; a swizzle is rewritten to .swizzle<...>().
#pragma once
#include "numbers.h"

namespace metal {

template <class T, int N>
struct vec;

template <class T, int N>
struct Storage;
template <class T>
struct alignas(2 * sizeof(T)) Storage<T, 2> {
  union {
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    T parts[2];
  };
};
template <class T>
struct alignas(4 * sizeof(T)) Storage<T, 3> {
  union {
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    T parts[3];
  };
};
template <class T>
struct alignas(4 * sizeof(T)) Storage<T, 4> {
  union {
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    T parts[4];
  };
};

template <class T>
inline constexpr int count_v = 1;
template <class T, int N>
inline constexpr int count_v<vec<T, N>> = N;

template <class T, int N, int... I>
struct Swizzled;
template <class T, int... I>
struct Assigned;

template <class T, int N>
struct vec : Storage<T, N> {
  using Storage<T, N>::parts;
  static_assert(N >= 2 && N <= 4);

  vec() = default;
  TORCHYARD_INLINE vec(T value) {
    for (int i = 0; i < N; i++) parts[i] = value;
  }
  template <class U, class = enable_if_t<is_arithmetic_v<U> && !is_same_v<U, T>>>
  TORCHYARD_INLINE vec(U value) : vec(static_cast<T>(value)) {}
  template <class U, class = enable_if_t<!is_same_v<U, T>>>
  TORCHYARD_INLINE explicit vec(vec<U, N> other) {
    for (int i = 0; i < N; i++) parts[i] = static_cast<T>(other.parts[i]);
  }
  template <class A, class B, class... C>
  TORCHYARD_INLINE vec(A first, B second, C... rest) {
    int at = 0;
    append(at, first);
    append(at, second);
    (append(at, rest), ...);
  }

  TORCHYARD_INLINE T& operator[](int i) { return parts[i]; }
  TORCHYARD_INLINE const T& operator[](int i) const { return parts[i]; }

  template <int... I>
  TORCHYARD_INLINE Swizzled<T, sizeof...(I), I...> swizzle() {
    return Swizzled<T, sizeof...(I), I...>(parts);
  }
  template <int... I>
  TORCHYARD_INLINE vec<T, sizeof...(I)> swizzle() const {
    return vec<T, sizeof...(I)>(parts[I]...);
  }
  // On the left of =, where what is there is not read.
  template <int... I>
  TORCHYARD_INLINE Assigned<T, I...> assigned() {
    return {parts};
  }

  TORCHYARD_INLINE vec operator-() const {
    vec result;
    for (int i = 0; i < N; i++) result.parts[i] = -parts[i];
    return result;
  }
  TORCHYARD_INLINE vec operator~() const {
    vec result;
    for (int i = 0; i < N; i++) result.parts[i] = ~parts[i];
    return result;
  }
  TORCHYARD_INLINE vec<bool, N> operator!() const {
    vec<bool, N> result;
    for (int i = 0; i < N; i++) result.parts[i] = !parts[i];
    return result;
  }

#define TORCHYARD_BINARY(op)                                                \
  friend TORCHYARD_INLINE vec operator op(vec a, vec b) {                   \
    vec result;                                                             \
    for (int i = 0; i < N; i++) result.parts[i] = a.parts[i] op b.parts[i]; \
    return result;                                                          \
  }                                                                         \
  TORCHYARD_INLINE vec& operator op## = (vec b) { return *this = *this op b; }
  TORCHYARD_BINARY(+)
  TORCHYARD_BINARY(-)
  TORCHYARD_BINARY(*)
  TORCHYARD_BINARY(/)
  TORCHYARD_BINARY(%)
  TORCHYARD_BINARY(&)
  TORCHYARD_BINARY(|)
  TORCHYARD_BINARY(^)
  TORCHYARD_BINARY(<<)
  TORCHYARD_BINARY(>>)
#undef TORCHYARD_BINARY
#define TORCHYARD_COMPARISON(op)                                            \
  friend TORCHYARD_INLINE vec<bool, N> operator op(vec a, vec b) {          \
    vec<bool, N> result;                                                    \
    for (int i = 0; i < N; i++) result.parts[i] = a.parts[i] op b.parts[i]; \
    return result;                                                          \
  }
  TORCHYARD_COMPARISON(<)
  TORCHYARD_COMPARISON(<=)
  TORCHYARD_COMPARISON(>)
  TORCHYARD_COMPARISON(>=)
  TORCHYARD_COMPARISON(==)
  TORCHYARD_COMPARISON(!=)
  TORCHYARD_COMPARISON(&&)
  TORCHYARD_COMPARISON(||)
#undef TORCHYARD_COMPARISON

 private:
  template <class U>
  TORCHYARD_INLINE void append(int& at, U value) {
    parts[at++] = static_cast<T>(value);
  }
  template <class U, int M>
  TORCHYARD_INLINE void append(int& at, vec<U, M> value) {
    for (int i = 0; i < M; i++) parts[at++] = static_cast<T>(value.parts[i]);
  }
  template <class U, int M, int... I>
  TORCHYARD_INLINE void append(int& at, Swizzled<U, M, I...> value) {
    append(at, static_cast<vec<U, M>>(value));
  }
};

// Some parts of a vector, as a value that can be assigned back.
template <class T, int N, int... I>
struct Swizzled : vec<T, N> {
  T* origin;

  TORCHYARD_INLINE explicit Swizzled(T* parts) : vec<T, N>(parts[I]...), origin(parts) {}
#define TORCHYARD_ASSIGNING(op)                             \
  TORCHYARD_INLINE void operator op## = (vec<T, N> other) { \
    int at = 0;                                             \
    ((origin[I] = origin[I] op other.parts[at++]), ...);    \
  }
  TORCHYARD_ASSIGNING(+)
  TORCHYARD_ASSIGNING(-)
  TORCHYARD_ASSIGNING(*)
  TORCHYARD_ASSIGNING(/)
#undef TORCHYARD_ASSIGNING
};

template <class T, int... I>
struct Assigned {
  T* origin;

  TORCHYARD_INLINE void operator=(vec<T, sizeof...(I)> other) const {
    int at = 0;
    ((origin[I] = other.parts[at++]), ...);
  }
};

// As a vector lies in memory without padding.
template <class T, int N>
struct packed_vec {
  T parts[N];

  packed_vec() = default;
  TORCHYARD_INLINE packed_vec(vec<T, N> other) {
    for (int i = 0; i < N; i++) parts[i] = other.parts[i];
  }
  TORCHYARD_INLINE operator vec<T, N>() const {
    vec<T, N> result;
    for (int i = 0; i < N; i++) result.parts[i] = parts[i];
    return result;
  }
  TORCHYARD_INLINE T& operator[](int i) { return parts[i]; }
  TORCHYARD_INLINE const T& operator[](int i) const { return parts[i]; }
};

template <int N>
TORCHYARD_INLINE bool all(vec<bool, N> value) {
  bool result = true;
  for (int i = 0; i < N; i++) result = result && value.parts[i];
  return result;
}
template <int N>
TORCHYARD_INLINE bool any(vec<bool, N> value) {
  bool result = false;
  for (int i = 0; i < N; i++) result = result || value.parts[i];
  return result;
}
TORCHYARD_INLINE bool all(bool value) { return value; }
TORCHYARD_INLINE bool any(bool value) { return value; }

}  // namespace metal

#define TORCHYARD_VECTORS(T)                     \
  using T##2 = metal::vec<T, 2>;                 \
  using T##3 = metal::vec<T, 3>;                 \
  using T##4 = metal::vec<T, 4>;                 \
  using packed_##T##2 = metal::packed_vec<T, 2>; \
  using packed_##T##3 = metal::packed_vec<T, 3>; \
  using packed_##T##4 = metal::packed_vec<T, 4>;
TORCHYARD_VECTORS(bool)
TORCHYARD_VECTORS(char)
TORCHYARD_VECTORS(uchar)
TORCHYARD_VECTORS(short)
TORCHYARD_VECTORS(ushort)
TORCHYARD_VECTORS(int)
TORCHYARD_VECTORS(uint)
TORCHYARD_VECTORS(long)
TORCHYARD_VECTORS(ulong)
TORCHYARD_VECTORS(half)
TORCHYARD_VECTORS(bfloat)
TORCHYARD_VECTORS(float)
#undef TORCHYARD_VECTORS

// Operations of a simdgroup, of a quadgroup and on atomic numbers, by OpenCL's of sub-groups.
#pragma once

namespace torchyard_opencl {

#define TORCHYARD_LANE_TYPES(M) \
  M(char, "c")                  \
  M(uchar, "h") M(short, "s") M(ushort, "t") M(int, "i") M(uint, "j") M(half, "Dh") M(float, "f")
#define TORCHYARD_BIT_TYPES(M) \
  M(char, "c") M(uchar, "h") M(short, "s") M(ushort, "t") M(int, "i") M(uint, "j")
#define TORCHYARD_IMPORT_LANES(T, t)                                         \
  T shuffle(T x, uint lane) __asm("_Z17sub_group_shuffle" t "j");            \
  T sum(T x) __asm("_Z32sub_group_non_uniform_reduce_add" t);                \
  T product(T x) __asm("_Z32sub_group_non_uniform_reduce_mul" t);            \
  T max(T x) __asm("_Z32sub_group_non_uniform_reduce_max" t);                \
  T min(T x) __asm("_Z32sub_group_non_uniform_reduce_min" t);                \
  T sum_before(T x) __asm("_Z40sub_group_non_uniform_scan_exclusive_add" t); \
  T product_before(T x) __asm("_Z40sub_group_non_uniform_scan_exclusive_mul" t);
TORCHYARD_LANE_TYPES(TORCHYARD_IMPORT_LANES)
#define TORCHYARD_IMPORT_BITS(T, t)                              \
  T all_of(T x) __asm("_Z32sub_group_non_uniform_reduce_and" t); \
  T any_of(T x) __asm("_Z31sub_group_non_uniform_reduce_or" t);  \
  T odd_of(T x) __asm("_Z32sub_group_non_uniform_reduce_xor" t);
TORCHYARD_BIT_TYPES(TORCHYARD_IMPORT_BITS)

template <class T>
TORCHYARD_INLINE T quad(T x, uint lane) {
  return shuffle(x, (torchyard_opencl::lane() & ~3u) + (lane & 3u));
}

}  // namespace torchyard_opencl

namespace metal {

#define TORCHYARD_SIMD(T, t)                                                                       \
  TORCHYARD_INLINE T simd_shuffle(T x, ushort lane) {                                              \
    return ::torchyard_opencl::shuffle(x, lane);                                                   \
  }                                                                                                \
  TORCHYARD_INLINE T simd_broadcast(T x, ushort lane) {                                            \
    return ::torchyard_opencl::shuffle(x, lane);                                                   \
  }                                                                                                \
  TORCHYARD_INLINE T simd_shuffle_xor(T x, ushort mask) {                                          \
    return ::torchyard_opencl::shuffle(x, ::torchyard_opencl::lane() ^ mask);                      \
  }                                                                                                \
  TORCHYARD_INLINE T simd_shuffle_down(T x, ushort delta) {                                        \
    const uint lane = ::torchyard_opencl::lane() + delta;                                          \
    return ::torchyard_opencl::shuffle(x, lane < 32u ? lane : ::torchyard_opencl::lane());         \
  }                                                                                                \
  TORCHYARD_INLINE T simd_shuffle_up(T x, ushort delta) {                                          \
    const uint lane = ::torchyard_opencl::lane();                                                  \
    return ::torchyard_opencl::shuffle(x, lane < delta ? lane : lane - delta);                     \
  }                                                                                                \
  TORCHYARD_INLINE T simd_shuffle_rotate_down(T x, ushort delta) {                                 \
    return ::torchyard_opencl::shuffle(x, (::torchyard_opencl::lane() + delta) % 32u);             \
  }                                                                                                \
  TORCHYARD_INLINE T simd_shuffle_rotate_up(T x, ushort delta) {                                   \
    return ::torchyard_opencl::shuffle(x, (::torchyard_opencl::lane() + 32u - delta % 32u) % 32u); \
  }                                                                                                \
  TORCHYARD_INLINE T simd_shuffle_and_fill_down(T x, T fill, ushort delta) {                       \
    const uint lane = ::torchyard_opencl::lane() + delta;                                          \
    const T near = ::torchyard_opencl::shuffle(x, lane % 32u);                                     \
    const T far = ::torchyard_opencl::shuffle(fill, lane % 32u);                                   \
    return lane < 32u ? near : far;                                                                \
  }                                                                                                \
  TORCHYARD_INLINE T simd_shuffle_and_fill_up(T x, T fill, ushort delta) {                         \
    const uint lane = ::torchyard_opencl::lane();                                                  \
    const T near = ::torchyard_opencl::shuffle(x, (lane + 32u - delta) % 32u);                     \
    const T far = ::torchyard_opencl::shuffle(fill, (lane + 32u - delta) % 32u);                   \
    return lane < delta ? far : near;                                                              \
  }                                                                                                \
  TORCHYARD_INLINE T simd_sum(T x) { return ::torchyard_opencl::sum(x); }                          \
  TORCHYARD_INLINE T simd_product(T x) { return ::torchyard_opencl::product(x); }                  \
  TORCHYARD_INLINE T simd_max(T x) { return ::torchyard_opencl::max(x); }                          \
  TORCHYARD_INLINE T simd_min(T x) { return ::torchyard_opencl::min(x); }                          \
  TORCHYARD_INLINE T simd_prefix_exclusive_sum(T x) { return ::torchyard_opencl::sum_before(x); }  \
  TORCHYARD_INLINE T simd_prefix_inclusive_sum(T x) {                                              \
    return T(::torchyard_opencl::sum_before(x) + x);                                               \
  }                                                                                                \
  TORCHYARD_INLINE T simd_prefix_exclusive_product(T x) {                                          \
    return ::torchyard_opencl::product_before(x);                                                  \
  }                                                                                                \
  TORCHYARD_INLINE T simd_prefix_inclusive_product(T x) {                                          \
    return T(::torchyard_opencl::product_before(x) * x);                                           \
  }                                                                                                \
  TORCHYARD_INLINE T quad_shuffle(T x, ushort lane) { return ::torchyard_opencl::quad(x, lane); }  \
  TORCHYARD_INLINE T quad_broadcast(T x, ushort lane) {                                            \
    return ::torchyard_opencl::quad(x, lane);                                                      \
  }                                                                                                \
  TORCHYARD_INLINE T quad_shuffle_xor(T x, ushort mask) {                                          \
    return ::torchyard_opencl::shuffle(x, ::torchyard_opencl::lane() ^ mask);                      \
  }                                                                                                \
  TORCHYARD_QUAD(T, quad_sum, T(a + b))                                                            \
  TORCHYARD_QUAD(T, quad_product, T(a* b))                                                         \
  TORCHYARD_QUAD(T, quad_max, max(a, b))                                                           \
  TORCHYARD_QUAD(T, quad_min, min(a, b))
// In the order of lanes.
#define TORCHYARD_QUAD(T, name, expression)       \
  TORCHYARD_INLINE T name(T x) {                  \
    T a = ::torchyard_opencl::quad(x, 0);         \
    for (uint i = 1; i < 4; i++) {                \
      const T b = ::torchyard_opencl::quad(x, i); \
      a = expression;                             \
    }                                             \
    return a;                                     \
  }
TORCHYARD_LANE_TYPES(TORCHYARD_SIMD)
#define TORCHYARD_SIMD_BITS(T, t)                                            \
  TORCHYARD_INLINE T simd_and(T x) { return ::torchyard_opencl::all_of(x); } \
  TORCHYARD_INLINE T simd_or(T x) { return ::torchyard_opencl::any_of(x); }  \
  TORCHYARD_INLINE T simd_xor(T x) { return ::torchyard_opencl::odd_of(x); } \
  TORCHYARD_QUAD(T, quad_and, T(a& b))                                       \
  TORCHYARD_QUAD(T, quad_or, T(a | b))                                       \
  TORCHYARD_QUAD(T, quad_xor, T(a ^ b))
TORCHYARD_BIT_TYPES(TORCHYARD_SIMD_BITS)
TORCHYARD_INLINE bool simd_all(bool x) { return ::torchyard_opencl::non_uniform_all(x) != 0; }
TORCHYARD_INLINE bool simd_any(bool x) { return ::torchyard_opencl::non_uniform_any(x) != 0; }
TORCHYARD_INLINE bool simd_is_first() { return ::torchyard_opencl::elect() != 0; }
TORCHYARD_INLINE bool quad_all(bool x) { return quad_and(int(x)) != 0; }
TORCHYARD_INLINE bool quad_any(bool x) { return quad_or(int(x)) != 0; }
TORCHYARD_INLINE simd_vote simd_ballot(bool x) {
  return simd_vote(::torchyard_opencl::ballot(x).x);
}
TORCHYARD_INLINE simd_vote simd_active_threads_mask() { return simd_ballot(true); }

// Each of 32 lanes holds two neighbours of a row, as Apple's GPUs have them.
TORCHYARD_INLINE uint row_of(uint lane) { return (lane / 4u & 4u) + (lane / 2u & 3u); }
TORCHYARD_INLINE uint column_of(uint lane) { return (lane / 4u & 2u) * 2u + (lane & 1u) * 2u; }
TORCHYARD_INLINE uint lane_of(uint row, uint column) {
  return (row & 4u) * 4u + (row & 3u) * 2u + (column & 4u) * 2u + (column / 2u & 1u);
}

template <class T, int C, int R>
simdgroup_matrix<T, C, R>::simdgroup_matrix(T diagonal) {
  const uint lane = ::torchyard_opencl::lane();
  elements.x = row_of(lane) == column_of(lane) ? diagonal : T(0.0f);
  elements.y = row_of(lane) == column_of(lane) + 1u ? diagonal : T(0.0f);
}
template <class T, int C, int R>
typename simdgroup_matrix<T, C, R>::Elements& simdgroup_matrix<T, C, R>::thread_elements() {
  return elements;
}
template <class T, int C, int R>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> made;
  made.elements.x = value;
  made.elements.y = value;
  return made;
}
template <class M, class P>
TORCHYARD_INLINE void load_matrix(thread M& to, P from, ulong width, ulong2 origin,
                                  bool transposed) {
  const ulong row = row_of(::torchyard_opencl::lane());
  const ulong column = column_of(::torchyard_opencl::lane());
  from += origin.y * width + origin.x;
  to.elements.x = transposed ? from[column * width + row] : from[row * width + column];
  to.elements.y = transposed ? from[(column + 1) * width + row] : from[row * width + column + 1];
}
template <class M, class P>
TORCHYARD_INLINE void store_matrix(thread const M& from, P to, ulong width, ulong2 origin,
                                   bool transposed) {
  const ulong row = row_of(::torchyard_opencl::lane());
  const ulong column = column_of(::torchyard_opencl::lane());
  to += origin.y * width + origin.x;
  to[transposed ? column * width + row : row * width + column] = from.elements.x;
  to[transposed ? (column + 1) * width + row : row * width + column + 1] = from.elements.y;
}
#define TORCHYARD_MATRIX_MEMORY(space)                                                          \
  template <class T>                                                                            \
  void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& to, space const T* from, ulong width,   \
                      ulong2 origin, bool transposed) {                                         \
    load_matrix(to, from, width, origin, transposed);                                           \
  }                                                                                             \
  template <class T>                                                                            \
  void simdgroup_store(simdgroup_matrix<T, 8, 8> from, space T* to, ulong width, ulong2 origin, \
                       bool transposed) {                                                       \
    store_matrix(from, to, width, origin, transposed);                                          \
  }
TORCHYARD_MATRIX_MEMORY(device)
TORCHYARD_MATRIX_MEMORY(threadgroup)
// Sums are float's, in the order of the reduced dimension, and rounded once.
template <class D, class T>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& to,
                                   simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b,
                                   simdgroup_matrix<D, 8, 8> c) {
  const uint lane = ::torchyard_opencl::lane();
  const uint row = row_of(lane), column = column_of(lane);
  float first = float(c.elements.x), second = float(c.elements.y);
  const float left[2] = {float(a.elements.x), float(a.elements.y)};
  const float right[2] = {float(b.elements.x), float(b.elements.y)};
  for (uint k = 0; k < 8; k++) {
    const float even = ::torchyard_opencl::shuffle(left[0], lane_of(row, k));
    const float odd = ::torchyard_opencl::shuffle(left[1], lane_of(row, k));
    const float factor = k % 2u == 0u ? even : odd;
    first += factor * ::torchyard_opencl::shuffle(right[0], lane_of(k, column));
    second += factor * ::torchyard_opencl::shuffle(right[1], lane_of(k, column));
  }
  to.elements.x = D(first);
  to.elements.y = D(second);
}
template <class D, class T>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& to, simdgroup_matrix<T, 8, 8> a,
                        simdgroup_matrix<T, 8, 8> b) {
  simdgroup_multiply_accumulate(to, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0.0f)));
}

#define TORCHYARD_MEMORY_SCOPE __MEMORY_SCOPE_DEVICE
#define TORCHYARD_EXCHANGES(space, T)                                                       \
  TORCHYARD_INLINE T atomic_load_explicit(volatile const space atomic<T>* at,               \
                                          memory_order order) {                             \
    return __scoped_atomic_load_n(&at->value, __ATOMIC_RELAXED, TORCHYARD_MEMORY_SCOPE);    \
  }                                                                                         \
  TORCHYARD_INLINE void atomic_store_explicit(volatile space atomic<T>* at, T desired,      \
                                              memory_order order) {                         \
    __scoped_atomic_store_n(&at->value, desired, __ATOMIC_RELAXED, TORCHYARD_MEMORY_SCOPE); \
  }                                                                                         \
  TORCHYARD_INLINE T atomic_exchange_explicit(volatile space atomic<T>* at, T desired,      \
                                              memory_order order) {                         \
    return __scoped_atomic_exchange_n(&at->value, desired, __ATOMIC_RELAXED,                \
                                      TORCHYARD_MEMORY_SCOPE);                              \
  }                                                                                         \
  TORCHYARD_INLINE bool atomic_compare_exchange_weak_explicit(                              \
      volatile space atomic<T>* at, thread T* expected, T desired, memory_order same,       \
      memory_order other) {                                                                 \
    return __scoped_atomic_compare_exchange_n(&at->value, expected, desired, true,          \
                                              __ATOMIC_RELAXED, __ATOMIC_RELAXED,           \
                                              TORCHYARD_MEMORY_SCOPE);                      \
  }                                                                                         \
  TORCHYARD_FETCH(space, T, add)                                                            \
  TORCHYARD_FETCH(space, T, and)                                                            \
  TORCHYARD_FETCH(space, T, max)                                                            \
  TORCHYARD_FETCH(space, T, min)                                                            \
  TORCHYARD_FETCH(space, T, or)                                                             \
  TORCHYARD_FETCH(space, T, sub)                                                            \
  TORCHYARD_FETCH(space, T, xor)
#define TORCHYARD_FETCH(space, T, name)                                                           \
  TORCHYARD_INLINE T atomic_fetch_##name##_explicit(volatile space atomic<T>* at, T x,            \
                                                    memory_order order) {                         \
    return __scoped_atomic_fetch_##name(&at->value, x, __ATOMIC_RELAXED, TORCHYARD_MEMORY_SCOPE); \
  }
TORCHYARD_EXCHANGES(device, int)
TORCHYARD_EXCHANGES(device, uint)
TORCHYARD_EXCHANGES(threadgroup, int)
TORCHYARD_EXCHANGES(threadgroup, uint)

}  // namespace metal

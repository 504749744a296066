// simdgroup_matrix<T, 8, 8>: each of 32 lanes holds two neighbours of a row, as the hardware does.
#pragma once
#include "simdgroup.h"

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "Metal has simdgroup matrices of 8 x 8");
  vec<T, 2> elements;

  simdgroup_matrix() = default;
  TORCHYARD_INLINE explicit simdgroup_matrix(T diagonal) : elements(T(0.0f)) {
    const unsigned lane = torchyard_metal::position(torchyard_metal::Place::kIndexInSimdgroup, 0);
    for (int i = 0; i < 2; i++)
      if (row_of(lane) == column_of(lane) + i) elements.parts[i] = diagonal;
  }
  TORCHYARD_INLINE vec<T, 2>& thread_elements() { return elements; }
  TORCHYARD_INLINE const vec<T, 2>& thread_elements() const { return elements; }

  static TORCHYARD_INLINE int row_of(unsigned lane) { return (lane / 4 & 4) + (lane / 2 & 3); }
  static TORCHYARD_INLINE int column_of(unsigned lane) {
    return (lane / 4 & 2) * 2 + (lane & 1) * 2;
  }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int C, int R>
TORCHYARD_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> made;
  made.elements = vec<T, 2>(value);
  return made;
}

// Every lane of a full simdgroup of 32 must take part.
TORCHYARD_UNCHECKED inline void check_whole(const Lanes<char>& lanes, const char* function,
                                            int line) {
  if (lanes.width() != 32)
    torchyard_metal::simd_fault(torchyard_metal::SimdFault::kWidth, function, line);
  else if (lanes.active() != 0xffffffffull)
    torchyard_metal::simd_fault(torchyard_metal::SimdFault::kNotAllLanes, function, line);
}

template <class T, class U>
TORCHYARD_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& to, const U* from,
                                     ulong elements_per_row = 8, ulong2 origin = ulong2(0ul),
                                     bool transposed = false, int line = __builtin_LINE()) {
  check_whole(Lanes<char>(0, 400, line), "simdgroup_load", line);
  const unsigned lane = torchyard_metal::position(torchyard_metal::Place::kIndexInSimdgroup, 0);
  const ulong row = to.row_of(lane), column = to.column_of(lane);
  for (ulong i = 0; i < 2; i++) {
    const ulong down = transposed ? column + i : row, right = transposed ? row : column + i;
    to.elements.parts[i] = from[(origin.y + down) * elements_per_row + origin.x + right];
  }
}
template <class T, class U>
TORCHYARD_INLINE void simdgroup_store(simdgroup_matrix<T, 8, 8> from, U* to,
                                      ulong elements_per_row = 8, ulong2 origin = ulong2(0ul),
                                      bool transposed = false, int line = __builtin_LINE()) {
  check_whole(Lanes<char>(0, 401, line), "simdgroup_store", line);
  const unsigned lane = torchyard_metal::position(torchyard_metal::Place::kIndexInSimdgroup, 0);
  const ulong row = from.row_of(lane), column = from.column_of(lane);
  for (ulong i = 0; i < 2; i++) {
    const ulong down = transposed ? column + i : row, right = transposed ? row : column + i;
    to[(origin.y + down) * elements_per_row + origin.x + right] = from.elements.parts[i];
  }
}

// Sums are float's, in the order of the reduced dimension, and rounded once.
template <class D, class A, class B, class C>
TORCHYARD_UNCHECKED void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& to,
                                                       simdgroup_matrix<A, 8, 8> a,
                                                       simdgroup_matrix<B, 8, 8> b,
                                                       simdgroup_matrix<C, 8, 8> c,
                                                       int line = __builtin_LINE()) {
  struct Given {
    vec<A, 2> a;
    vec<B, 2> b;
  };
  check_whole(Lanes<char>(0, 402, line), "simdgroup_multiply_accumulate", line);
  const Lanes<Given> lanes({a.elements, b.elements}, 403, line);
  const int row = to.row_of(lanes.lane()), column = to.column_of(lanes.lane());
  float left[64] = {}, right[64] = {};
  for (unsigned lane = 0; lane < 32; lane++) {
    if (!lanes.has(lane)) continue;
    const Given given = lanes[lane];
    for (int i = 0; i < 2; i++) {
      left[to.row_of(lane) * 8 + to.column_of(lane) + i] = given.a.parts[i];
      right[to.row_of(lane) * 8 + to.column_of(lane) + i] = given.b.parts[i];
    }
  }
  for (int i = 0; i < 2; i++) {
    float sum = c.elements.parts[i];
    for (int k = 0; k < 8; k++) sum += left[row * 8 + k] * right[k * 8 + column + i];
    to.elements.parts[i] = sum;
  }
}
template <class D, class A, class B>
TORCHYARD_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& to, simdgroup_matrix<A, 8, 8> a,
                                         simdgroup_matrix<B, 8, 8> b, int line = __builtin_LINE()) {
  simdgroup_multiply_accumulate(to, a, b, make_filled_simdgroup_matrix<float, 8, 8>(0.0f), line);
}

}  // namespace metal

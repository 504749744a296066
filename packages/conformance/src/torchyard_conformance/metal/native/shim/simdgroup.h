// Barriers, and operations of a simdgroup or quadgroup on its active lanes.
#pragma once
#include "integers.h"

namespace metal {

enum class mem_flags : int { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
TORCHYARD_INLINE mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<int>(a) | static_cast<int>(b));
}
TORCHYARD_INLINE mem_flags operator&(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<int>(a) & static_cast<int>(b));
}

TORCHYARD_INLINE void threadgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
  torchyard_metal::group_barrier(static_cast<int>(flags), line);
}
TORCHYARD_INLINE void simdgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
  torchyard_metal::simd_barrier(static_cast<int>(flags), line);
}

// What every active lane of a group of lanes gave, until the next operation of the simdgroup.
template <class T>
class Lanes {
 public:
  TORCHYARD_UNCHECKED Lanes(const T& value, int operation, int line, unsigned lanes = 0) {
    static_assert(sizeof(T) <= torchyard_metal::kLargestValue);
    const auto* found = torchyard_metal::exchange(&value, sizeof(T), operation, line);
    values_ = found->values;
    width_ = lanes ? lanes : found->width;
    first_ = lanes ? found->lane / lanes * lanes : 0;
    lane_ = found->lane - first_;
    active_ = found->active >> first_;
  }
  TORCHYARD_UNCHECKED unsigned lane() const { return lane_; }
  TORCHYARD_UNCHECKED unsigned width() const { return width_; }
  TORCHYARD_UNCHECKED torchyard_metal::Bits64 active() const {
    return width_ >= 64 ? active_ : active_ & ((1ull << width_) - 1);
  }
  TORCHYARD_UNCHECKED bool has(unsigned lane) const {
    return lane < width_ && (active_ >> lane & 1);
  }
  TORCHYARD_UNCHECKED T operator[](unsigned lane) const {
    T value;
    __builtin_memcpy(&value, values_ + (first_ + lane) * torchyard_metal::kLargestValue, sizeof(T));
    return value;
  }

 private:
  const unsigned char* values_;
  unsigned width_, first_, lane_;
  torchyard_metal::Bits64 active_;
};

template <class T>
struct Filled {
  T value, fill;
};

// A value of a lane that is not active is undefined in Metal.
template <class T>
TORCHYARD_UNCHECKED T read_lane(const Lanes<T>& lanes, unsigned lane, T otherwise,
                                const char* function, int line) {
  if (lanes.has(lane)) return lanes[lane];
  torchyard_metal::simd_fault(torchyard_metal::SimdFault::kInactiveLane, function, line);
  return otherwise;
}

#define TORCHYARD_LANES(name, quads, number)                                                       \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_broadcast(T x, ushort lane, int line = __builtin_LINE()) {          \
    return read_lane(Lanes<T>(x, number, line, quads), lane, x, #name "_broadcast", line);         \
  }                                                                                                \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_broadcast_first(T x, int line = __builtin_LINE()) {                 \
    const Lanes<T> lanes(x, number + 1, line, quads);                                              \
    return lanes[__builtin_ctzll(lanes.active())];                                                 \
  }                                                                                                \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_shuffle(T x, ushort lane, int line = __builtin_LINE()) {            \
    return read_lane(Lanes<T>(x, number + 2, line, quads), lane, x, #name "_shuffle", line);       \
  }                                                                                                \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_shuffle_xor(T x, ushort mask, int line = __builtin_LINE()) {        \
    const Lanes<T> lanes(x, number + 3, line, quads);                                              \
    return read_lane(lanes, lanes.lane() ^ mask, x, #name "_shuffle_xor", line);                   \
  }                                                                                                \
  /* A lane that has no other by this distance keeps its value. */                                 \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_shuffle_down(T x, ushort delta, int line = __builtin_LINE()) {      \
    const Lanes<T> lanes(x, number + 4, line, quads);                                              \
    const unsigned lane = lanes.lane() + delta;                                                    \
    return lane < lanes.width() ? read_lane(lanes, lane, x, #name "_shuffle_down", line) : x;      \
  }                                                                                                \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_shuffle_up(T x, ushort delta, int line = __builtin_LINE()) {        \
    const Lanes<T> lanes(x, number + 5, line, quads);                                              \
    if (lanes.lane() < delta) return x;                                                            \
    return read_lane(lanes, lanes.lane() - delta, x, #name "_shuffle_up", line);                   \
  }                                                                                                \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_shuffle_rotate_down(T x, ushort delta,                              \
                                                   int line = __builtin_LINE()) {                  \
    const Lanes<T> lanes(x, number + 6, line, quads);                                              \
    const unsigned lane = (lanes.lane() + delta) % lanes.width();                                  \
    return read_lane(lanes, lane, x, #name "_shuffle_rotate_down", line);                          \
  }                                                                                                \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_shuffle_rotate_up(T x, ushort delta, int line = __builtin_LINE()) { \
    const Lanes<T> lanes(x, number + 7, line, quads);                                              \
    const unsigned width = lanes.width(), lane = (lanes.lane() + width - delta % width) % width;   \
    return read_lane(lanes, lane, x, #name "_shuffle_rotate_up", line);                            \
  }                                                                                                \
  template <class T>                                                                               \
  TORCHYARD_UNCHECKED T name##_shuffle_and_fill_down(T x, T fill, ushort delta,                    \
                                                     int line = __builtin_LINE()) {                \
    const Lanes<Filled<T>> lanes({x, fill}, number + 8, line, quads);                              \
    const unsigned lane = lanes.lane() + delta, width = lanes.width();                             \
    if (lanes.has(lane % width))                                                                   \
      return lane < width ? lanes[lane].value : lanes[lane % width].fill;                          \
    torchyard_metal::simd_fault(torchyard_metal::SimdFault::kInactiveLane,                         \
                                #name "_shuffle_and_fill_down", line);                             \
    return x;                                                                                      \
  }                                                                                                \
  TORCHYARD_REDUCTION(name, quads, number + 10, sum, a + b)                                        \
  TORCHYARD_REDUCTION(name, quads, number + 11, product, a * b)                                    \
  TORCHYARD_REDUCTION(name, quads, number + 12, max, max(a, b))                                    \
  TORCHYARD_REDUCTION(name, quads, number + 13, min, min(a, b))                                    \
  TORCHYARD_REDUCTION(name, quads, number + 14, and, a & b)                                        \
  TORCHYARD_REDUCTION(name, quads, number + 15, or, a | b)                                         \
  TORCHYARD_REDUCTION(name, quads, number + 16, xor, a ^ b)                                        \
  TORCHYARD_SCAN(name, quads, number + 17, sum, a + b, 0)                                          \
  TORCHYARD_SCAN(name, quads, number + 19, product, a * b, 1)                                      \
  TORCHYARD_UNCHECKED inline bool name##_all(bool x, int line = __builtin_LINE()) {                \
    return name##_and(static_cast<int>(x), line) != 0;                                             \
  }                                                                                                \
  TORCHYARD_UNCHECKED inline bool name##_any(bool x, int line = __builtin_LINE()) {                \
    return name##_or(static_cast<int>(x), line) != 0;                                              \
  }                                                                                                \
  TORCHYARD_UNCHECKED inline bool name##_is_first(int line = __builtin_LINE()) {                   \
    const Lanes<int> lanes(0, number + 21, line, quads);                                           \
    return lanes.lane() == static_cast<unsigned>(__builtin_ctzll(lanes.active()));                 \
  }

#define TORCHYARD_REDUCTION(name, quads, number, what, expression)        \
  template <class T>                                                      \
  TORCHYARD_UNCHECKED T name##_##what(T x, int line = __builtin_LINE()) { \
    const Lanes<T> lanes(x, number, line, quads);                         \
    T a = x;                                                              \
    bool some = false;                                                    \
    for (unsigned lane = 0; lane < lanes.width(); lane++) {               \
      if (!lanes.has(lane)) continue;                                     \
      const T b = lanes[lane];                                            \
      a = some ? T(expression) : b;                                       \
      some = true;                                                        \
    }                                                                     \
    return a;                                                             \
  }
#define TORCHYARD_SCAN(name, quads, number, what, expression, unit)                        \
  template <class T>                                                                       \
  TORCHYARD_UNCHECKED T name##_prefix_exclusive_##what(T x, int line = __builtin_LINE()) { \
    const Lanes<T> lanes(x, number, line, quads);                                          \
    T a = T(unit);                                                                         \
    for (unsigned lane = 0; lane < lanes.lane(); lane++) {                                 \
      if (!lanes.has(lane)) continue;                                                      \
      const T b = lanes[lane];                                                             \
      a = T(expression);                                                                   \
    }                                                                                      \
    return a;                                                                              \
  }                                                                                        \
  template <class T>                                                                       \
  TORCHYARD_UNCHECKED T name##_prefix_inclusive_##what(T b, int line = __builtin_LINE()) { \
    const T a = name##_prefix_exclusive_##what(b, line);                                   \
    return T(expression);                                                                  \
  }

TORCHYARD_LANES(simd, 0, 100)
TORCHYARD_LANES(quad, 4, 200)
#undef TORCHYARD_LANES
#undef TORCHYARD_REDUCTION
#undef TORCHYARD_SCAN

struct simd_vote {
  using vote_t = ulong;
  vote_t bits;
  simd_vote(vote_t bits = 0) : bits(bits) {}
  explicit operator vote_t() const { return bits; }
  bool any() const { return bits != 0; }
};
TORCHYARD_UNCHECKED inline simd_vote simd_ballot(bool x, int line = __builtin_LINE()) {
  const Lanes<bool> lanes(x, 300, line);
  simd_vote vote;
  for (unsigned lane = 0; lane < lanes.width(); lane++)
    if (lanes.has(lane) && lanes[lane]) vote.bits |= 1ul << lane;
  return vote;
}
TORCHYARD_UNCHECKED inline simd_vote simd_active_threads_mask(int line = __builtin_LINE()) {
  return simd_ballot(true, line);
}

}  // namespace metal

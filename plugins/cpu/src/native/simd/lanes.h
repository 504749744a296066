// Arithmetic on lanes of several types, for any instruction set: the compiler's vector types in the
// width of an Isa's registers. What a processor has no instruction for becomes several.
#pragma once

#include <cstdint>
#include <cstring>

namespace torchyard {
namespace {

template <class Isa>
struct Lanes {
  static constexpr int kCount = Isa::kLanes;
  using Float = typename Isa::Vec;
  typedef int32_t Int __attribute__((vector_size(4 * kCount)));
  typedef uint32_t Bits __attribute__((vector_size(4 * kCount)));
  typedef int64_t Long __attribute__((vector_size(8 * kCount)));
  typedef uint64_t LongBits __attribute__((vector_size(8 * kCount)));

  template <class V>
  static inline __attribute__((always_inline)) V load(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  template <class V>
  static inline __attribute__((always_inline)) void store(void* p, V v) {
    std::memcpy(p, &v, sizeof(v));
  }

  static inline __attribute__((always_inline)) Int bits(Float v) { return load<Int>(&v); }
  static inline __attribute__((always_inline)) Float floats(Int v) { return load<Float>(&v); }

  // `yes` where `truth` is -1, `no` where it is 0.
  static inline __attribute__((always_inline)) Float choose(Int truth, Float yes, Float no) {
    return truth ? yes : no;
  }
};

}  // namespace
}  // namespace torchyard

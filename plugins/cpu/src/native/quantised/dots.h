// Four unsigned bytes times four signed ones, added to int32, on whatever the compiler has.
#pragma once

#include <cstdint>
#include <cstring>

#include "quantised/sums-inl.h"

namespace torchyard {
namespace {

template <class Isa>
struct LaneDot {
  using Int = typename Lanes<Isa>::Int;
  struct Word {
    int32_t x[4];
  };

  template <int kBits>
  static TORCHYARD_INLINE Word broadcast(const uint32_t* p) {
    int8_t x[4];
    std::memcpy(x, p, sizeof(x));
    return {{x[0], x[1], x[2], x[3]}};
  }
  template <int kBits>
  static TORCHYARD_INLINE Int dot(Int total, Int codes, Word word) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) total += (codes >> (8 * j) & 0xff) * word.x[j];
    return total;
  }
};

}  // namespace
}  // namespace torchyard

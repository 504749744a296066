// A loop of independent multiply-accumulates, for one format of words.
#pragma once

#include "base/isa/kernel_table.h"
#include "limits/limits.h"

// Names a vector register to the compiler.
#if defined(__aarch64__)
#define TORCHYARD_LIMIT_REGISTER(vector) "+w"(vector)
#elif defined(__AVX512F__)
#define TORCHYARD_LIMIT_REGISTER(vector) "+v"(vector)
#elif defined(__x86_64__)
#define TORCHYARD_LIMIT_REGISTER(vector) "+x"(vector)
#else
#define TORCHYARD_LIMIT_REGISTER(vector) "+m"(vector)
#endif

namespace torchyard {
namespace {

// Two ports times a latency of four to six cycles.
constexpr int kChains = 12;
constexpr int kSteps = 1 << 13;

template <class Format>
double multiply_accumulate() {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  Vec sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = Isa::zero();
  Vec a = Isa::set1(1.0f), b = Isa::set1(1.0f);
  // The compiler must neither know the factors nor fold the loop.
  __asm__ volatile("" : TORCHYARD_LIMIT_REGISTER(a), TORCHYARD_LIMIT_REGISTER(b));
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = Format::dot(sums[c], a, b);
      __asm__ volatile("" : TORCHYARD_LIMIT_REGISTER(sums[c]));
    }
  }
  return 2.0 * kSteps * kChains * Isa::kLanes * Format::kPair;
}

}  // namespace
}  // namespace torchyard

// The initialiser of the ArithmeticLoop <set>_<dtype>.
#define TORCHYARD_LIMIT(set, dtype, ...) \
  {#set "_" #dtype, #dtype, isa::set.required, &multiply_accumulate<__VA_ARGS__>}

// Function attributes of GCC and Clang.
#pragma once

#define TORCHYARD_INLINE inline __attribute__((always_inline))

// For functions around an inner loop: inlined into a common caller, their constants would be
// hoisted into registers that the accumulators need.
#define TORCHYARD_NOINLINE __attribute__((noinline))

// Arithmetic of Advanced SIMD on pairs of bfloat16.
#include "limits/loop-inl.h"
#include "simd/format_bf16_pair_neon.h"

namespace torchyard {

TORCHYARD_KERNELS(limits, ArithmeticLoop, neonbf16,
                  TORCHYARD_LIMIT(neonbf16, bfloat16, NeonBf16PairFormat))

}  // namespace torchyard

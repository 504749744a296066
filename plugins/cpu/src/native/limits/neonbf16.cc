// Arithmetic of Advanced SIMD on pairs of bfloat16.
#include "attention/format_bf16_pair_neon.h"
#include "limits/loop-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LIMIT(neonbf16_bfloat16, "bfloat16", kAsimd | kArmBf16, NeonBf16PairFormat)

}  // namespace torchyard

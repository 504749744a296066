// Linear kernels for 64-bit Arm with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/format_bf16_pair_neon.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LINEAR(linear_bf16_6x16_neonbf16, "neonbf16", kBFloat16, kAsimd | kArmBf16,
                        NeonBf16PairFormat)

}  // namespace torchyard

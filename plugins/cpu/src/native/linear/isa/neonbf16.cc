// Linear kernels for 64-bit Arm with BF16: pairs of bfloat16 are multiplied as they are.
#include "linear/kernel-inl.h"
#include "simd/format_bf16_pair_neon.h"

namespace torchyard {

TORCHYARD_KERNELS(linear, LinearKernel, neonbf16,
                  TORCHYARD_LINEAR(neonbf16, bf16_6x16, kBFloat16, NeonBf16PairFormat))

}  // namespace torchyard

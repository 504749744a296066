// Attention backward for 64-bit Arm with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/backward/rows-inl.h"
#include "simd/format_bf16_pair_neon.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_backward, BackwardKernel, neonbf16,
                  TORCHYARD_BACKWARD(neonbf16, bf16_6x16, kBFloat16,
                                     BackwardRows<NeonBf16PairFormat>))

}  // namespace torchyard

// Attention for 64-bit Arm with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/decode/kernel-inl.h"
#include "attention/forward/kernel-inl.h"
#include "simd/format_bf16_pair_neon.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_forward, ForwardKernel, neonbf16,
                  TORCHYARD_FORWARD(neonbf16, bf16_6x16, kBFloat16, NeonBf16PairFormat))

TORCHYARD_KERNELS(attention_decode, DecodeKernel, neonbf16,
                  TORCHYARD_DECODE(neonbf16, bf16, kBFloat16, NeonBf16PairFormat))

}  // namespace torchyard

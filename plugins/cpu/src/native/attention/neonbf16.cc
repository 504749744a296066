// Attention for 64-bit Arm with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/decode_kernel-inl.h"
#include "attention/format_bf16_pair_neon.h"
#include "attention/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_FORWARD(attention_forward_bf16_6x16_neonbf16, "neonbf16", kBFloat16,
                         kAsimd | kArmBf16, NeonBf16PairFormat)

TORCHYARD_DEFINE_DECODE(attention_decode_bf16_neonbf16, "neonbf16", kBFloat16, kAsimd | kArmBf16,
                        NeonBf16PairFormat)

}  // namespace torchyard

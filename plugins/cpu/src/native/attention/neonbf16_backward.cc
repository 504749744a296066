// Attention backward for 64-bit Arm with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/backward_rows-inl.h"
#include "attention/format_bf16_pair_neon.h"

namespace torchyard {

TORCHYARD_DEFINE_BACKWARD(attention_backward_bf16_6x16_neonbf16, "neonbf16", kBFloat16,
                          kAsimd | kArmBf16, BackwardRows<NeonBf16PairFormat>)

}  // namespace torchyard

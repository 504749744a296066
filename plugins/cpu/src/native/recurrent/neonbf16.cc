// Recurrent layers for 64-bit Arm with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/format_bf16_pair_neon.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_RECURRENT(recurrent_bf16_neonbf16, "neonbf16", kBFloat16, kAsimd | kArmBf16,
                           PairWords<NeonBf16PairFormat>)

}  // namespace torchyard

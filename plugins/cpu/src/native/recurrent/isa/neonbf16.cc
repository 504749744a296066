// Recurrent layers for 64-bit Arm with BF16: pairs of bfloat16 are multiplied as they are.
#include "recurrent/kernel-inl.h"
#include "simd/format_bf16_pair_neon.h"

namespace torchyard {

TORCHYARD_KERNELS(recurrent, RecurrentKernel, neonbf16,
                  TORCHYARD_RECURRENT(neonbf16, bf16, kBFloat16, PairWords<NeonBf16PairFormat>))

}  // namespace torchyard

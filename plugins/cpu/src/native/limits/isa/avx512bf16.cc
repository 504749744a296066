// Arithmetic of AVX-512 on pairs of bfloat16.
#include "limits/loop-inl.h"
#include "simd/format_bf16_pair_avx512.h"

namespace torchyard {

TORCHYARD_KERNELS(limits, ArithmeticLoop, avx512bf16,
                  TORCHYARD_LIMIT(avx512bf16, bfloat16, Bf16PairFormat))

}  // namespace torchyard

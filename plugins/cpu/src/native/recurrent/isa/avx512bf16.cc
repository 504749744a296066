// Recurrent layers for AVX-512 with BF16: pairs of bfloat16 are multiplied as they are.
#include "recurrent/kernel-inl.h"
#include "simd/format_bf16_pair_avx512.h"

namespace torchyard {

TORCHYARD_KERNELS(recurrent, RecurrentKernel, avx512bf16,
                  TORCHYARD_RECURRENT(avx512bf16, bf16, kBFloat16, PairWords<Bf16PairFormat>))

}  // namespace torchyard

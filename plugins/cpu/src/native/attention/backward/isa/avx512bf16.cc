// Attention backward for AVX-512 with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/backward/rows-inl.h"
#include "simd/format_bf16_pair_avx512.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_backward, BackwardKernel, avx512bf16,
                  TORCHYARD_BACKWARD(avx512bf16, bf16_6x64, kBFloat16,
                                     BackwardRows<Bf16PairFormat>))

}  // namespace torchyard

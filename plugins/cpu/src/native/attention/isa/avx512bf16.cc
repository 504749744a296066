// Attention for AVX-512 with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/decode/kernel-inl.h"
#include "attention/forward/kernel-inl.h"
#include "simd/format_bf16_pair_avx512.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_forward, ForwardKernel, avx512bf16,
                  TORCHYARD_FORWARD(avx512bf16, bf16_6x64, kBFloat16, Bf16PairFormat))

TORCHYARD_KERNELS(attention_decode, DecodeKernel, avx512bf16,
                  TORCHYARD_DECODE(avx512bf16, bf16, kBFloat16, Bf16PairFormat))

}  // namespace torchyard

// Linear kernels for AVX-512 with BF16: pairs of bfloat16 are multiplied as they are.
#include "linear/kernel-inl.h"
#include "simd/format_bf16_pair_avx512.h"

namespace torchyard {

TORCHYARD_KERNELS(linear, LinearKernel, avx512bf16,
                  TORCHYARD_LINEAR(avx512bf16, bf16_14x32, kBFloat16, Bf16PairFormat))

}  // namespace torchyard

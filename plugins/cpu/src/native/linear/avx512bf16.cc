// Linear kernels for AVX-512 with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/format_bf16_pair.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LINEAR(linear_bf16_14x32_avx512bf16, "avx512bf16", kBFloat16,
                        kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Bf16, Bf16PairFormat)

}  // namespace torchyard

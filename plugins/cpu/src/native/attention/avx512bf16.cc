// Attention for AVX-512 with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/decode_kernel-inl.h"
#include "attention/format_bf16_pair.h"
#include "attention/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_FORWARD(attention_forward_bf16_6x64_avx512bf16, "avx512bf16", kBFloat16,
                         kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Bf16, Bf16PairFormat)

TORCHYARD_DEFINE_DECODE(attention_decode_bf16_avx512bf16, "avx512bf16", kBFloat16,
                        kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Bf16, Bf16PairFormat)

}  // namespace torchyard

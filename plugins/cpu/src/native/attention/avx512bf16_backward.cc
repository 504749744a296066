// Attention backward for AVX-512 with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/backward_rows-inl.h"
#include "attention/format_bf16_pair.h"

namespace torchyard {

TORCHYARD_DEFINE_BACKWARD(attention_backward_bf16_6x64_avx512bf16, "avx512bf16", kBFloat16,
                          kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Bf16,
                          BackwardRows<Bf16PairFormat>)

}  // namespace torchyard

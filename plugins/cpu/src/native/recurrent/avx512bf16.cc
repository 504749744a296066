// Recurrent layers for AVX-512 with BF16: pairs of bfloat16 are multiplied as they are.
#include "attention/format_bf16_pair.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_RECURRENT(recurrent_bf16_avx512bf16, "avx512bf16", kBFloat16,
                           kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Bf16,
                           PairWords<Bf16PairFormat>)

}  // namespace torchyard

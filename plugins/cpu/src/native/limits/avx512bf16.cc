// Arithmetic of AVX-512 on pairs of bfloat16.
#include "attention/format_bf16_pair.h"
#include "limits/loop-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LIMIT(avx512bf16_bfloat16, "bfloat16",
                       kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Bf16, Bf16PairFormat)

}  // namespace torchyard

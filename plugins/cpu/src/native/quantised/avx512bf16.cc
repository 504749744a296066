// Quantised weights for AVX-512 with dot products of bytes and of bfloat16.
#include "quantised/pairs-inl.h"

#include "quantised/dots_avx512.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_QUANTISED(quantised_linear_avx512bf16, "avx512bf16",
                           kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Vnni | kAvx512Bf16,
                           QuantisedPairs<VnniDot>)

}  // namespace torchyard

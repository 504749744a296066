// Quantised weights for AVX-512 with dot products of bytes and of bfloat16.
#include "quantised/pairs-inl.h"

#include "quantised/dots_avx512.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(quantised, QuantisedKernel, avx512bf16,
                  TORCHYARD_QUANTISED(avx512bf16, kAvx512Vnni, QuantisedPairs<VnniDot>))

}  // namespace torchyard

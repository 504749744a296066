// Quantised weights for AVX-512 with dot products of bytes.
#include "simd/avx512.h"

#include "quantised/dots_avx512.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(quantised, QuantisedKernel, avx512vnni,
                  TORCHYARD_QUANTISED(avx512vnni, 0, Quantised<Avx512, VnniDot>))

}  // namespace torchyard

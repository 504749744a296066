// Quantised weights for AVX-512 F, BW, DQ and VL.
#include "simd/avx512.h"

#include "quantised/dots_avx512.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(quantised, QuantisedKernel, avx512,
                  TORCHYARD_QUANTISED(avx512, 0, Quantised<Avx512, Avx512Dot>))

}  // namespace torchyard

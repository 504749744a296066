// Quantised weights for AVX2, FMA and F16C.
#include "simd/avx2.h"

#include "quantised/dots_x86.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(quantised, QuantisedKernel, avx2,
                  TORCHYARD_QUANTISED(avx2, 0, Quantised<Avx2, Avx2Dot>))

}  // namespace torchyard

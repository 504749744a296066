// Quantised weights for AVX2, FMA and F16C.
#include "simd/avx2.h"

#include "quantised/dots_x86.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_QUANTISED(quantised_linear_avx2, "avx2", kAvx2 | kFma | kF16c,
                           Quantised<Avx2, Avx2Dot>)

}  // namespace torchyard

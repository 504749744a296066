// Quantised weights for AVX-512 F, BW, DQ and VL.
#include "simd/avx512.h"

#include "quantised/dots_avx512.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_QUANTISED(quantised_linear_avx512, "avx512",
                           kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                           Quantised<Avx512, Avx512Dot>)

}  // namespace torchyard

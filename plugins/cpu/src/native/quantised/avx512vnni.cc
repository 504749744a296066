// Quantised weights for AVX-512 with dot products of bytes.
#include "simd/avx512.h"

#include "quantised/dots_avx512.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_QUANTISED(quantised_linear_avx512vnni, "avx512vnni",
                           kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Vnni,
                           Quantised<Avx512, VnniDot>)

}  // namespace torchyard

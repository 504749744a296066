// Recurrent layers for AVX-512 F, BW, DQ and VL.
#include "simd/avx512.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_RECURRENT(recurrent_f32_avx512, "avx512", kFloat32,
                           kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl, WideWords<Avx512, float>)
TORCHYARD_DEFINE_RECURRENT(recurrent_bf16_avx512, "avx512", kBFloat16,
                           kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl, WideWords<Avx512, Bf16>)
TORCHYARD_DEFINE_RECURRENT(recurrent_f16_avx512, "avx512", kFloat16,
                           kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl, WideWords<Avx512, F16>)

}  // namespace torchyard

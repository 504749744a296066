// Recurrent layers for AVX2, FMA and F16C.
#include "simd/avx2.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_RECURRENT(recurrent_f32_avx2, "avx2", kFloat32, kAvx2 | kFma | kF16c,
                           WideWords<Avx2, float>)
TORCHYARD_DEFINE_RECURRENT(recurrent_bf16_avx2, "avx2", kBFloat16, kAvx2 | kFma | kF16c,
                           WideWords<Avx2, Bf16>)
TORCHYARD_DEFINE_RECURRENT(recurrent_f16_avx2, "avx2", kFloat16, kAvx2 | kFma | kF16c,
                           WideWords<Avx2, F16>)

}  // namespace torchyard

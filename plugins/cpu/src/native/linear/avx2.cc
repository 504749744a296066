// Linear kernels for AVX2 with FMA and F16C; 16-bit elements are widened to float32.
#include "simd/avx2.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LINEAR(linear_f32_6x16_avx2, "avx2", kFloat32, kAvx2 | kFma | kF16c,
                        FloatFormat<Avx2, float, Exp2Degree5>)
TORCHYARD_DEFINE_LINEAR(linear_bf16_6x16_avx2, "avx2", kBFloat16, kAvx2 | kFma | kF16c,
                        FloatFormat<Avx2, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_LINEAR(linear_f16_6x16_avx2, "avx2", kFloat16, kAvx2 | kFma | kF16c,
                        FloatFormat<Avx2, F16, Exp2Degree5>)

}  // namespace torchyard

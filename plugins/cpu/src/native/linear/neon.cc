// Linear kernels for Advanced SIMD of 64-bit Arm; 16-bit elements are widened to float32.
#include "simd/neon.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LINEAR(linear_f32_6x16_neon, "neon", kFloat32, kAsimd,
                        FloatFormat<Neon, float, Exp2Degree5>)
TORCHYARD_DEFINE_LINEAR(linear_bf16_6x16_neon, "neon", kBFloat16, kAsimd,
                        FloatFormat<Neon, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_LINEAR(linear_f16_6x16_neon, "neon", kFloat16, kAsimd,
                        FloatFormat<Neon, F16, Exp2Degree5>)

}  // namespace torchyard

// Linear kernels for Advanced SIMD of 64-bit Arm; 16-bit elements are widened to float32.
#include "simd/neon.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(linear, LinearKernel, neon,
                  TORCHYARD_LINEAR(neon, f32_6x16, kFloat32, FloatFormat<Neon, float, Exp2Degree5>),
                  TORCHYARD_LINEAR(neon, bf16_6x16, kBFloat16,
                                   FloatFormat<Neon, Bf16, Exp2Degree5>),
                  TORCHYARD_LINEAR(neon, f16_6x16, kFloat16, FloatFormat<Neon, F16, Exp2Degree5>))

}  // namespace torchyard

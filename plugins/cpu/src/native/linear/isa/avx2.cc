// Linear kernels for AVX2 with FMA and F16C; 16-bit elements are widened to float32.
#include "simd/avx2.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(linear, LinearKernel, avx2,
                  TORCHYARD_LINEAR(avx2, f32_6x16, kFloat32, FloatFormat<Avx2, float, Exp2Degree5>),
                  TORCHYARD_LINEAR(avx2, bf16_6x16, kBFloat16,
                                   FloatFormat<Avx2, Bf16, Exp2Degree5>),
                  TORCHYARD_LINEAR(avx2, f16_6x16, kFloat16, FloatFormat<Avx2, F16, Exp2Degree5>))

}  // namespace torchyard

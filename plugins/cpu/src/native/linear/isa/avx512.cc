// Linear kernels for AVX-512 F, BW, DQ and VL; 16-bit elements are widened to float32.
#include "simd/avx512.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(
    linear, LinearKernel, avx512,
    TORCHYARD_LINEAR(avx512, f32_14x32, kFloat32, FloatFormat<Avx512, float, Exp2Degree5>),
    TORCHYARD_LINEAR(avx512, bf16_14x32, kBFloat16, FloatFormat<Avx512, Bf16, Exp2Degree5>),
    TORCHYARD_LINEAR(avx512, f16_14x32, kFloat16, FloatFormat<Avx512, F16, Exp2Degree5>))

// amx_float16.cc leaves few rows to it.
extern const LinearKernel* const linear_f16_avx512;
const LinearKernel* const linear_f16_avx512 = &linear_kernels_avx512[2];

}  // namespace torchyard

// Linear kernels for any processor, compiled with the baseline's flags; 16-bit elements are widened
// to float32.
#include "simd/scalar.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(
    linear, LinearKernel, scalar,
    TORCHYARD_LINEAR(scalar, f32_6x8, kFloat32, FloatFormat<Scalar, float, Exp2Degree5>),
    TORCHYARD_LINEAR(scalar, bf16_6x8, kBFloat16, FloatFormat<Scalar, Bf16, Exp2Degree5>),
    TORCHYARD_LINEAR(scalar, f16_6x8, kFloat16, FloatFormat<Scalar, F16, Exp2Degree5>))

}  // namespace torchyard

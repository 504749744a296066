// Linear kernels for any processor, compiled with the baseline's flags; 16-bit elements are widened
// to float32.
#include "simd/scalar.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LINEAR(linear_f32_6x8_scalar, "scalar", kFloat32, 0,
                        FloatFormat<Scalar, float, Exp2Degree5>)
TORCHYARD_DEFINE_LINEAR(linear_bf16_6x8_scalar, "scalar", kBFloat16, 0,
                        FloatFormat<Scalar, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_LINEAR(linear_f16_6x8_scalar, "scalar", kFloat16, 0,
                        FloatFormat<Scalar, F16, Exp2Degree5>)

}  // namespace torchyard

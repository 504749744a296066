// Attention backward for any processor: compiled with the baseline's flags.
#include "attention/backward_rows-inl.h"
#include "simd/scalar.h"

namespace torchyard {

TORCHYARD_DEFINE_BACKWARD(attention_backward_f32_6x8_scalar, "scalar", kFloat32, 0,
                          BackwardRows<FloatFormat<Scalar, float, Exp2Degree5>>)
TORCHYARD_DEFINE_BACKWARD(attention_backward_bf16_6x8_scalar, "scalar", kBFloat16, 0,
                          BackwardRows<FloatFormat<Scalar, Bf16, Exp2Degree5>>)
TORCHYARD_DEFINE_BACKWARD(attention_backward_f16_6x8_scalar, "scalar", kFloat16, 0,
                          BackwardRows<FloatFormat<Scalar, F16, Exp2Degree5>>)

}  // namespace torchyard

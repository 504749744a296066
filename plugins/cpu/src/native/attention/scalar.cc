// Attention for any processor: compiled with the baseline's flags.
#include "simd/scalar.h"
#include "attention/decode_kernel-inl.h"
#include "attention/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_FORWARD(attention_forward_f32_6x8_scalar, "scalar", kFloat32, 0,
                         FloatFormat<Scalar, float, Exp2Degree5>)
TORCHYARD_DEFINE_FORWARD(attention_forward_bf16_6x8_scalar, "scalar", kBFloat16, 0,
                         FloatFormat<Scalar, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_FORWARD(attention_forward_f16_6x8_scalar, "scalar", kFloat16, 0,
                         FloatFormat<Scalar, F16, Exp2Degree5>)

TORCHYARD_DEFINE_DECODE(attention_decode_f32_scalar, "scalar", kFloat32, 0,
                        FloatFormat<Scalar, float, Exp2Degree5>)
TORCHYARD_DEFINE_DECODE(attention_decode_bf16_scalar, "scalar", kBFloat16, 0,
                        FloatFormat<Scalar, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_DECODE(attention_decode_f16_scalar, "scalar", kFloat16, 0,
                        FloatFormat<Scalar, F16, Exp2Degree5>)

}  // namespace torchyard

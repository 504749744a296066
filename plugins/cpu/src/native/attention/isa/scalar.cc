// Attention for any processor: compiled with the baseline's flags.
#include "simd/scalar.h"
#include "attention/decode/kernel-inl.h"
#include "attention/forward/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(
    attention_forward, ForwardKernel, scalar,
    TORCHYARD_FORWARD(scalar, f32_6x8, kFloat32, FloatFormat<Scalar, float, Exp2Degree5>),
    TORCHYARD_FORWARD(scalar, bf16_6x8, kBFloat16, FloatFormat<Scalar, Bf16, Exp2Degree5>),
    TORCHYARD_FORWARD(scalar, f16_6x8, kFloat16, FloatFormat<Scalar, F16, Exp2Degree5>))

TORCHYARD_KERNELS(attention_decode, DecodeKernel, scalar,
                  TORCHYARD_DECODE(scalar, f32, kFloat32, FloatFormat<Scalar, float, Exp2Degree5>),
                  TORCHYARD_DECODE(scalar, bf16, kBFloat16, FloatFormat<Scalar, Bf16, Exp2Degree5>),
                  TORCHYARD_DECODE(scalar, f16, kFloat16, FloatFormat<Scalar, F16, Exp2Degree5>))

}  // namespace torchyard

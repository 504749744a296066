// Attention backward for any processor: compiled with the baseline's flags.
#include "simd/scalar.h"
#include "attention/backward/rows-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_backward, BackwardKernel, scalar,
                  TORCHYARD_BACKWARD(scalar, f32_6x8, kFloat32,
                                     BackwardRows<FloatFormat<Scalar, float, Exp2Degree5>>),
                  TORCHYARD_BACKWARD(scalar, bf16_6x8, kBFloat16,
                                     BackwardRows<FloatFormat<Scalar, Bf16, Exp2Degree5>>),
                  TORCHYARD_BACKWARD(scalar, f16_6x8, kFloat16,
                                     BackwardRows<FloatFormat<Scalar, F16, Exp2Degree5>>))

}  // namespace torchyard

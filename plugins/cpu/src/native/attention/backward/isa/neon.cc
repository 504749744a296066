// Attention backward for Advanced SIMD of 64-bit Arm; 16-bit elements are widened while they are
// packed.
#include "simd/neon.h"
#include "attention/backward/rows-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_backward, BackwardKernel, neon,
                  TORCHYARD_BACKWARD(neon, f32_6x16, kFloat32,
                                     BackwardRows<FloatFormat<Neon, float, Exp2Degree5>>),
                  TORCHYARD_BACKWARD(neon, bf16_6x16, kBFloat16,
                                     BackwardRows<FloatFormat<Neon, Bf16, Exp2Degree5>>),
                  TORCHYARD_BACKWARD(neon, f16_6x16, kFloat16,
                                     BackwardRows<FloatFormat<Neon, F16, Exp2Degree5>>))

}  // namespace torchyard

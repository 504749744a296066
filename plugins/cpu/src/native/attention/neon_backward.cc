// Attention backward for Advanced SIMD of 64-bit Arm; 16-bit elements are widened while they are
// packed.
#include "attention/backward_rows-inl.h"
#include "simd/neon.h"

namespace torchyard {

TORCHYARD_DEFINE_BACKWARD(attention_backward_f32_6x16_neon, "neon", kFloat32, kAsimd,
                          BackwardRows<FloatFormat<Neon, float, Exp2Degree5>>)
TORCHYARD_DEFINE_BACKWARD(attention_backward_bf16_6x16_neon, "neon", kBFloat16, kAsimd,
                          BackwardRows<FloatFormat<Neon, Bf16, Exp2Degree5>>)
TORCHYARD_DEFINE_BACKWARD(attention_backward_f16_6x16_neon, "neon", kFloat16, kAsimd,
                          BackwardRows<FloatFormat<Neon, F16, Exp2Degree5>>)

}  // namespace torchyard

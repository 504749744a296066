// Attention for Advanced SIMD of 64-bit Arm; 16-bit elements are widened while they are packed.
#include "simd/neon.h"
#include "attention/decode_kernel-inl.h"
#include "attention/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_FORWARD(attention_forward_f32_6x16_neon, "neon", kFloat32, kAsimd,
                         FloatFormat<Neon, float, Exp2Degree5>)
TORCHYARD_DEFINE_FORWARD(attention_forward_bf16_6x16_neon, "neon", kBFloat16, kAsimd,
                         FloatFormat<Neon, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_FORWARD(attention_forward_f16_6x16_neon, "neon", kFloat16, kAsimd,
                         FloatFormat<Neon, F16, Exp2Degree5>)

TORCHYARD_DEFINE_DECODE(attention_decode_f32_neon, "neon", kFloat32, kAsimd,
                        FloatFormat<Neon, float, Exp2Degree5>)
TORCHYARD_DEFINE_DECODE(attention_decode_bf16_neon, "neon", kBFloat16, kAsimd,
                        FloatFormat<Neon, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_DECODE(attention_decode_f16_neon, "neon", kFloat16, kAsimd,
                        FloatFormat<Neon, F16, Exp2Degree5>)

}  // namespace torchyard

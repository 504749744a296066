// Attention for Advanced SIMD of 64-bit Arm; 16-bit elements are widened while they are packed.
#include "simd/neon.h"
#include "attention/decode/kernel-inl.h"
#include "attention/forward/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_forward, ForwardKernel, neon,
                  TORCHYARD_FORWARD(neon, f32_6x16, kFloat32,
                                    FloatFormat<Neon, float, Exp2Degree5>),
                  TORCHYARD_FORWARD(neon, bf16_6x16, kBFloat16,
                                    FloatFormat<Neon, Bf16, Exp2Degree5>),
                  TORCHYARD_FORWARD(neon, f16_6x16, kFloat16, FloatFormat<Neon, F16, Exp2Degree5>))

TORCHYARD_KERNELS(attention_decode, DecodeKernel, neon,
                  TORCHYARD_DECODE(neon, f32, kFloat32, FloatFormat<Neon, float, Exp2Degree5>),
                  TORCHYARD_DECODE(neon, bf16, kBFloat16, FloatFormat<Neon, Bf16, Exp2Degree5>),
                  TORCHYARD_DECODE(neon, f16, kFloat16, FloatFormat<Neon, F16, Exp2Degree5>))

}  // namespace torchyard

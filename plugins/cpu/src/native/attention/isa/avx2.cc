// Attention for AVX2 with FMA and F16C; 16-bit elements are widened while they are packed.
#include "simd/avx2.h"
#include "attention/decode/kernel-inl.h"
#include "attention/forward/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_forward, ForwardKernel, avx2,
                  TORCHYARD_FORWARD(avx2, f32_6x16, kFloat32,
                                    FloatFormat<Avx2, float, Exp2Degree5>),
                  TORCHYARD_FORWARD(avx2, bf16_6x16, kBFloat16,
                                    FloatFormat<Avx2, Bf16, Exp2Degree5>),
                  TORCHYARD_FORWARD(avx2, f16_6x16, kFloat16, FloatFormat<Avx2, F16, Exp2Degree5>))

TORCHYARD_KERNELS(attention_decode, DecodeKernel, avx2,
                  TORCHYARD_DECODE(avx2, f32, kFloat32, FloatFormat<Avx2, float, Exp2Degree5>),
                  TORCHYARD_DECODE(avx2, bf16, kBFloat16, FloatFormat<Avx2, Bf16, Exp2Degree5>),
                  TORCHYARD_DECODE(avx2, f16, kFloat16, FloatFormat<Avx2, F16, Exp2Degree5>))

}  // namespace torchyard

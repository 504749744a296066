// Attention for AVX-512 F, BW, DQ and VL; 16-bit elements are widened while they are packed.
#include "simd/avx512.h"
#include "attention/decode/kernel-inl.h"
#include "attention/forward/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(
    attention_forward, ForwardKernel, avx512,
    TORCHYARD_FORWARD(avx512, f32_6x64, kFloat32, FloatFormat<Avx512, float, Exp2Degree5>),
    TORCHYARD_FORWARD(avx512, bf16_6x64, kBFloat16, FloatFormat<Avx512, Bf16, Exp2Degree5>),
    TORCHYARD_FORWARD(avx512, f16_6x64, kFloat16, FloatFormat<Avx512, F16, Exp2Degree5>))

TORCHYARD_KERNELS(attention_decode, DecodeKernel, avx512,
                  TORCHYARD_DECODE(avx512, f32, kFloat32, FloatFormat<Avx512, float, Exp2Degree5>),
                  TORCHYARD_DECODE(avx512, bf16, kBFloat16, FloatFormat<Avx512, Bf16, Exp2Degree5>),
                  TORCHYARD_DECODE(avx512, f16, kFloat16, FloatFormat<Avx512, F16, Exp2Degree5>))

}  // namespace torchyard

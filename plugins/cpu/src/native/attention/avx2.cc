// Attention for AVX2 with FMA and F16C; 16-bit elements are widened while they are packed.
#include "simd/avx2.h"
#include "attention/decode_kernel-inl.h"
#include "attention/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_FORWARD(attention_forward_f32_6x16_avx2, "avx2", kFloat32, kAvx2 | kFma | kF16c,
                         FloatFormat<Avx2, float, Exp2Degree5>)
TORCHYARD_DEFINE_FORWARD(attention_forward_bf16_6x16_avx2, "avx2", kBFloat16, kAvx2 | kFma | kF16c,
                         FloatFormat<Avx2, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_FORWARD(attention_forward_f16_6x16_avx2, "avx2", kFloat16, kAvx2 | kFma | kF16c,
                         FloatFormat<Avx2, F16, Exp2Degree5>)

TORCHYARD_DEFINE_DECODE(attention_decode_f32_avx2, "avx2", kFloat32, kAvx2 | kFma | kF16c,
                        FloatFormat<Avx2, float, Exp2Degree5>)
TORCHYARD_DEFINE_DECODE(attention_decode_bf16_avx2, "avx2", kBFloat16, kAvx2 | kFma | kF16c,
                        FloatFormat<Avx2, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_DECODE(attention_decode_f16_avx2, "avx2", kFloat16, kAvx2 | kFma | kF16c,
                        FloatFormat<Avx2, F16, Exp2Degree5>)

}  // namespace torchyard

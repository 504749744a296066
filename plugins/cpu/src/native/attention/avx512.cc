// Attention for AVX-512 F, BW, DQ and VL; 16-bit elements are widened while they are packed.
#include "simd/avx512.h"
#include "attention/decode_kernel-inl.h"
#include "attention/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_FORWARD(attention_forward_f32_6x64_avx512, "avx512", kFloat32,
                         kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                         FloatFormat<Avx512, float, Exp2Degree5>)
TORCHYARD_DEFINE_FORWARD(attention_forward_bf16_6x64_avx512, "avx512", kBFloat16,
                         kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                         FloatFormat<Avx512, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_FORWARD(attention_forward_f16_6x64_avx512, "avx512", kFloat16,
                         kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                         FloatFormat<Avx512, F16, Exp2Degree5>)

TORCHYARD_DEFINE_DECODE(attention_decode_f32_avx512, "avx512", kFloat32,
                        kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                        FloatFormat<Avx512, float, Exp2Degree5>)
TORCHYARD_DEFINE_DECODE(attention_decode_bf16_avx512, "avx512", kBFloat16,
                        kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                        FloatFormat<Avx512, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_DECODE(attention_decode_f16_avx512, "avx512", kFloat16,
                        kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                        FloatFormat<Avx512, F16, Exp2Degree5>)

}  // namespace torchyard

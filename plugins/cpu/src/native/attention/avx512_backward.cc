// Attention backward for AVX-512 F, BW, DQ and VL; 16-bit elements are widened while
// they are packed.
#include "attention/backward_rows-inl.h"
#include "simd/avx512.h"

namespace torchyard {

TORCHYARD_DEFINE_BACKWARD(attention_backward_f32_6x64_avx512, "avx512", kFloat32,
                          kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                          BackwardRows<FloatFormat<Avx512, float, Exp2Degree5>>)
TORCHYARD_DEFINE_BACKWARD(attention_backward_bf16_6x64_avx512, "avx512", kBFloat16,
                          kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                          BackwardRows<FloatFormat<Avx512, Bf16, Exp2Degree5>>)
TORCHYARD_DEFINE_BACKWARD(attention_backward_f16_6x64_avx512, "avx512", kFloat16,
                          kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                          BackwardRows<FloatFormat<Avx512, F16, Exp2Degree5>>)

}  // namespace torchyard

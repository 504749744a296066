// Linear kernels for AVX-512 F, BW, DQ and VL; 16-bit elements are widened to float32.
#include "simd/avx512.h"
#include "linear/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LINEAR(linear_f32_14x32_avx512, "avx512", kFloat32,
                        kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                        FloatFormat<Avx512, float, Exp2Degree5>)
TORCHYARD_DEFINE_LINEAR(linear_bf16_14x32_avx512, "avx512", kBFloat16,
                        kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                        FloatFormat<Avx512, Bf16, Exp2Degree5>)
TORCHYARD_DEFINE_LINEAR(linear_f16_14x32_avx512, "avx512", kFloat16,
                        kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                        FloatFormat<Avx512, F16, Exp2Degree5>)

}  // namespace torchyard

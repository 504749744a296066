// Attention backward for AVX-512 F, BW, DQ and VL; 16-bit elements are widened while
// they are packed.
#include "simd/avx512.h"
#include "attention/backward/rows-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_backward, BackwardKernel, avx512,
                  TORCHYARD_BACKWARD(avx512, f32_6x64, kFloat32,
                                     BackwardRows<FloatFormat<Avx512, float, Exp2Degree5>>),
                  TORCHYARD_BACKWARD(avx512, bf16_6x64, kBFloat16,
                                     BackwardRows<FloatFormat<Avx512, Bf16, Exp2Degree5>>),
                  TORCHYARD_BACKWARD(avx512, f16_6x64, kFloat16,
                                     BackwardRows<FloatFormat<Avx512, F16, Exp2Degree5>>))

}  // namespace torchyard

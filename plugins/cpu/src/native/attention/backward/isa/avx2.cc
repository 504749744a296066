// Attention backward for AVX2 with FMA and F16C; 16-bit elements are widened while they are packed.
#include "simd/avx2.h"
#include "attention/backward/rows-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(attention_backward, BackwardKernel, avx2,
                  TORCHYARD_BACKWARD(avx2, f32_6x16, kFloat32,
                                     BackwardRows<FloatFormat<Avx2, float, Exp2Degree5>>),
                  TORCHYARD_BACKWARD(avx2, bf16_6x16, kBFloat16,
                                     BackwardRows<FloatFormat<Avx2, Bf16, Exp2Degree5>>),
                  TORCHYARD_BACKWARD(avx2, f16_6x16, kFloat16,
                                     BackwardRows<FloatFormat<Avx2, F16, Exp2Degree5>>))

}  // namespace torchyard

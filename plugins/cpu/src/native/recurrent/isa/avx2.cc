// Recurrent layers for AVX2, FMA and F16C.
#include "simd/avx2.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(recurrent, RecurrentKernel, avx2,
                  TORCHYARD_RECURRENT(avx2, f32, kFloat32, WideWords<Avx2, float>),
                  TORCHYARD_RECURRENT(avx2, bf16, kBFloat16, WideWords<Avx2, Bf16>),
                  TORCHYARD_RECURRENT(avx2, f16, kFloat16, WideWords<Avx2, F16>))

}  // namespace torchyard

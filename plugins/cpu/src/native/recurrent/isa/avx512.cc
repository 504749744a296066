// Recurrent layers for AVX-512 F, BW, DQ and VL.
#include "simd/avx512.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(recurrent, RecurrentKernel, avx512,
                  TORCHYARD_RECURRENT(avx512, f32, kFloat32, WideWords<Avx512, float>),
                  TORCHYARD_RECURRENT(avx512, bf16, kBFloat16, WideWords<Avx512, Bf16>),
                  TORCHYARD_RECURRENT(avx512, f16, kFloat16, WideWords<Avx512, F16>))

}  // namespace torchyard

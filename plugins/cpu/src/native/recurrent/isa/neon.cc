// Recurrent layers for Advanced SIMD of 64-bit Arm.
#include "simd/neon.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(recurrent, RecurrentKernel, neon,
                  TORCHYARD_RECURRENT(neon, f32, kFloat32, WideWords<Neon, float>),
                  TORCHYARD_RECURRENT(neon, bf16, kBFloat16, WideWords<Neon, Bf16>),
                  TORCHYARD_RECURRENT(neon, f16, kFloat16, WideWords<Neon, F16>))

}  // namespace torchyard

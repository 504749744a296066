// Recurrent layers for Advanced SIMD of 64-bit Arm.
#include "simd/neon.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_RECURRENT(recurrent_f32_neon, "neon", kFloat32, kAsimd, WideWords<Neon, float>)
TORCHYARD_DEFINE_RECURRENT(recurrent_bf16_neon, "neon", kBFloat16, kAsimd, WideWords<Neon, Bf16>)
TORCHYARD_DEFINE_RECURRENT(recurrent_f16_neon, "neon", kFloat16, kAsimd, WideWords<Neon, F16>)

}  // namespace torchyard

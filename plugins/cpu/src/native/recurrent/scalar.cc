// Recurrent layers for any processor: compiled with the baseline's flags.
#include "simd/scalar.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_RECURRENT(recurrent_f32_scalar, "scalar", kFloat32, 0, WideWords<Scalar, float>)
TORCHYARD_DEFINE_RECURRENT(recurrent_bf16_scalar, "scalar", kBFloat16, 0, WideWords<Scalar, Bf16>)
TORCHYARD_DEFINE_RECURRENT(recurrent_f16_scalar, "scalar", kFloat16, 0, WideWords<Scalar, F16>)

}  // namespace torchyard

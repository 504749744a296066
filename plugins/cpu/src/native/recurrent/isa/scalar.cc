// Recurrent layers for any processor: compiled with the baseline's flags.
#include "simd/scalar.h"
#include "recurrent/kernel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(recurrent, RecurrentKernel, scalar,
                  TORCHYARD_RECURRENT(scalar, f32, kFloat32, WideWords<Scalar, float>),
                  TORCHYARD_RECURRENT(scalar, bf16, kBFloat16, WideWords<Scalar, Bf16>),
                  TORCHYARD_RECURRENT(scalar, f16, kFloat16, WideWords<Scalar, F16>))

}  // namespace torchyard

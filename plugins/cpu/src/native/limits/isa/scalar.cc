// Arithmetic for any processor, compiled with the baseline's flags.
#include "simd/scalar.h"
#include "limits/loop-inl.h"
#include "simd/format.h"

namespace torchyard {

TORCHYARD_KERNELS(limits, ArithmeticLoop, scalar,
                  TORCHYARD_LIMIT(scalar, float32, FloatFormat<Scalar, float, Exp2Degree5>))

}  // namespace torchyard

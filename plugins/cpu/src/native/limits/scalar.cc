// Arithmetic for any processor, compiled with the baseline's flags.
#include "simd/scalar.h"
#include "attention/format.h"
#include "limits/loop-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LIMIT(scalar_float32, "float32", 0, FloatFormat<Scalar, float, Exp2Degree5>)

}  // namespace torchyard

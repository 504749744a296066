// Arithmetic of Advanced SIMD.
#include "simd/neon.h"
#include "limits/loop-inl.h"
#include "simd/format.h"

namespace torchyard {

TORCHYARD_KERNELS(limits, ArithmeticLoop, neon,
                  TORCHYARD_LIMIT(neon, float32, FloatFormat<Neon, float, Exp2Degree5>))

}  // namespace torchyard

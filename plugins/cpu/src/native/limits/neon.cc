// Arithmetic of Advanced SIMD.
#include "simd/neon.h"
#include "attention/format.h"
#include "limits/loop-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LIMIT(neon_float32, "float32", kAsimd, FloatFormat<Neon, float, Exp2Degree5>)

}  // namespace torchyard

// Arithmetic of AVX2 with FMA.
#include "simd/avx2.h"
#include "attention/format.h"
#include "limits/loop-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LIMIT(avx2_float32, "float32", kAvx2 | kFma | kF16c,
                       FloatFormat<Avx2, float, Exp2Degree5>)

}  // namespace torchyard

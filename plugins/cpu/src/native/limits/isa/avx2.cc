// Arithmetic of AVX2 with FMA.
#include "simd/avx2.h"
#include "limits/loop-inl.h"
#include "simd/format.h"

namespace torchyard {

TORCHYARD_KERNELS(limits, ArithmeticLoop, avx2,
                  TORCHYARD_LIMIT(avx2, float32, FloatFormat<Avx2, float, Exp2Degree5>))

}  // namespace torchyard

// Arithmetic of AVX-512.
#include "simd/avx512.h"
#include "limits/loop-inl.h"
#include "simd/format.h"

namespace torchyard {

TORCHYARD_KERNELS(limits, ArithmeticLoop, avx512,
                  TORCHYARD_LIMIT(avx512, float32, FloatFormat<Avx512, float, Exp2Degree5>))

}  // namespace torchyard

// Arithmetic of AVX-512.
#include "simd/avx512.h"
#include "attention/format.h"
#include "limits/loop-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_LIMIT(avx512_float32, "float32", kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                       FloatFormat<Avx512, float, Exp2Degree5>)

}  // namespace torchyard

// Selection for AVX2.
#include "simd/avx2.h"
#include "topk/select-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_TOPK(Avx2, avx2, kAvx2 | kFma | kF16c)

}  // namespace torchyard

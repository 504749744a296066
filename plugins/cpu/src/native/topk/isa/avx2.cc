// Selection for AVX2.
#include "simd/avx2.h"
#include "topk/select-inl.h"

namespace torchyard {

TORCHYARD_TOPK_KERNELS(Avx2, avx2)

}  // namespace torchyard

// Selection for AVX-512 F, BW, DQ and VL.
#include "topk/append_avx512-inl.h"
#include "topk/select-inl.h"

namespace torchyard {

TORCHYARD_TOPK_KERNELS(Avx512, avx512)

}  // namespace torchyard

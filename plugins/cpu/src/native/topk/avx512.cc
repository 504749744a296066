// Selection for AVX-512 F, BW, DQ and VL.
#include "topk/append_avx512-inl.h"
#include "topk/select-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_TOPK(Avx512, avx512, kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl)

}  // namespace torchyard

// Selection for Advanced SIMD of 64-bit Arm.
#include "simd/neon.h"
#include "topk/select-inl.h"

namespace torchyard {

TORCHYARD_TOPK_KERNELS(Neon, neon)

}  // namespace torchyard

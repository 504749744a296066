// Selection for Advanced SIMD of 64-bit Arm.
#include "simd/neon.h"
#include "topk/select-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_TOPK(Neon, neon, kAsimd)

}  // namespace torchyard

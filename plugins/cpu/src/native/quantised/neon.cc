// Quantised weights for 64-bit Arm.
#include "simd/neon.h"

#include "quantised/dots.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_QUANTISED(quantised_linear_neon, "neon", kAsimd, Quantised<Neon, LaneDot<Neon>>)

}  // namespace torchyard

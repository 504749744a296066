// Quantised weights for 64-bit Arm.
#include "simd/neon.h"

#include "quantised/dots.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(quantised, QuantisedKernel, neon,
                  TORCHYARD_QUANTISED(neon, 0, Quantised<Neon, LaneDot<Neon>>))

}  // namespace torchyard

// Quantised weights for whatever the compiler's baseline has.
#include "simd/scalar.h"

#include "quantised/dots.h"
#include "quantised/panel-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(quantised, QuantisedKernel, scalar,
                  TORCHYARD_QUANTISED(scalar, 0, Quantised<Scalar, LaneDot<Scalar>>))

}  // namespace torchyard

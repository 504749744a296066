#include "simd/scalar.h"

#include "programs/tile-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_PROGRAM(program_scalar, "scalar", 0, Scalar)

}  // namespace torchyard

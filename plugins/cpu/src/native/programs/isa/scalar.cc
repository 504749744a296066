#include "simd/scalar.h"

#include "programs/tile-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(program, ProgramKernel, scalar, TORCHYARD_PROGRAM(scalar, Scalar))

}  // namespace torchyard

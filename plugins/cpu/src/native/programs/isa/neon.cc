#include "simd/neon.h"

#include "programs/tile-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(program, ProgramKernel, neon, TORCHYARD_PROGRAM(neon, Neon))

}  // namespace torchyard

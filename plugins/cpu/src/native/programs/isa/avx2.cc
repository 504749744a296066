#include "simd/avx2.h"

#include "programs/tile-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(program, ProgramKernel, avx2, TORCHYARD_PROGRAM(avx2, Avx2))

}  // namespace torchyard

#include "simd/avx512.h"

#include "programs/tile-inl.h"

namespace torchyard {

TORCHYARD_KERNELS(program, ProgramKernel, avx512, TORCHYARD_PROGRAM(avx512, Avx512))

}  // namespace torchyard

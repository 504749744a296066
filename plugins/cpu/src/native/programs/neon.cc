#include "simd/neon.h"

#include "programs/tile-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_PROGRAM(program_neon, "neon", kAsimd, Neon)

}  // namespace torchyard

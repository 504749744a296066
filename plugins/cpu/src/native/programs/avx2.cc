#include "simd/avx2.h"

#include "programs/tile-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_PROGRAM(program_avx2, "avx2", kAvx2 | kFma | kF16c, Avx2)

}  // namespace torchyard

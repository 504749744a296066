#include "simd/avx512.h"

#include "programs/tile-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_PROGRAM(program_avx512, "avx512", kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl,
                         Avx512)

}  // namespace torchyard

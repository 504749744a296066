// Reductions for AVX-512 F, BW, DQ and VL.
#include "simd/avx512.h"
#include "base/isa/kernel_table.h"
#include "shm/reduce/reduce-inl.h"

namespace torchyard::shm {

TORCHYARD_KERNELS(reduction, ReductionKernel, avx512,
                  {"reduction_avx512", "avx512", isa::avx512.required, reduction<Avx512>})

}  // namespace torchyard::shm

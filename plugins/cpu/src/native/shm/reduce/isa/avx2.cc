// Reductions for AVX2, FMA and F16C.
#include "simd/avx2.h"
#include "base/isa/kernel_table.h"
#include "shm/reduce/reduce-inl.h"

namespace torchyard::shm {

TORCHYARD_KERNELS(reduction, ReductionKernel, avx2,
                  {"reduction_avx2", "avx2", isa::avx2.required, reduction<Avx2>})

}  // namespace torchyard::shm

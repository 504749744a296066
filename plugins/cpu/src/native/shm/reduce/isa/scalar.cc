// Reductions for any processor: compiled with the baseline's flags.
#include "simd/scalar.h"
#include "base/isa/kernel_table.h"
#include "shm/reduce/reduce-inl.h"

namespace torchyard::shm {

TORCHYARD_KERNELS(reduction, ReductionKernel, scalar,
                  {"reduction_scalar", "scalar", isa::scalar.required, reduction<Scalar>})

}  // namespace torchyard::shm

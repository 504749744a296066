#include "shm/reduce-inl.h"
#include "simd/scalar.h"

namespace torchyard::shm {

Reduction scalar_reduction(Dtype dtype, Operation operation) {
  return reduction<Scalar>(dtype, operation);
}

}  // namespace torchyard::shm

#include "shm/reduce-inl.h"
#include "simd/avx2.h"

namespace torchyard::shm {

Reduction avx2_reduction(Dtype dtype, Operation operation) {
  return reduction<Avx2>(dtype, operation);
}

}  // namespace torchyard::shm

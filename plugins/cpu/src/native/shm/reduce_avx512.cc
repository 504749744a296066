#include "shm/reduce-inl.h"
#include "simd/avx512.h"

namespace torchyard::shm {

Reduction avx512_reduction(Dtype dtype, Operation operation) {
  return reduction<Avx512>(dtype, operation);
}

}  // namespace torchyard::shm

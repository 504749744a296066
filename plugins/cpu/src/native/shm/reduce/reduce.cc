#include "shm/reduce/reduce.h"

namespace torchyard::shm {

size_t element_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt8:
    case Dtype::kUInt8:
    case Dtype::kBool:
      return 1;
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
    case Dtype::kInt16:
    case Dtype::kUInt16:
      return 2;
    case Dtype::kFloat32:
    case Dtype::kInt32:
    case Dtype::kUInt32:
      return 4;
    default:
      return 8;
  }
}

Reduction find_reduction(Dtype dtype, Operation operation) {
  static const ReductionKernel* const kernel = kReductionKernels.select(detect_features());
  return kernel->find(dtype, operation);
}

}  // namespace torchyard::shm

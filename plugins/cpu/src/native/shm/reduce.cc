#include "shm/reduce.h"

#include "base/cpu_features.h"

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
#if defined(TORCHYARD_X86)
  static const FeatureSet features = detect_features();
  constexpr FeatureSet kAvx512 = kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl;
  constexpr FeatureSet kAvx2Set = kAvx2 | kFma | kF16c;
  if ((features & kAvx512) == kAvx512) return avx512_reduction(dtype, operation);
  if ((features & kAvx2Set) == kAvx2Set) return avx2_reduction(dtype, operation);
#endif
  return scalar_reduction(dtype, operation);
}

}  // namespace torchyard::shm

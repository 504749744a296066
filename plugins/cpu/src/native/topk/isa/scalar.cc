// Selection for any processor: compiled with the baseline's flags.
#include "simd/scalar.h"
#include "topk/select-inl.h"

namespace torchyard {

TORCHYARD_TOPK_KERNELS(Scalar, scalar)

}  // namespace torchyard

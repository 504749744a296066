// Selection for any processor: compiled with the baseline's flags.
#include "simd/scalar.h"
#include "topk/select-inl.h"

namespace torchyard {

TORCHYARD_DEFINE_TOPK(Scalar, scalar, 0)

}  // namespace torchyard

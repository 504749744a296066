#include "attention/backward_dispatch.h"

#include <cstring>

namespace torchyard {

#define TORCHYARD_ATTENTION_BACKWARD(name, isa, dtype, required) extern const BackwardKernel name;
#include "attention/backward_kernels.inc"
#undef TORCHYARD_ATTENTION_BACKWARD

const BackwardKernel* const kBackwardKernels[] = {
#define TORCHYARD_ATTENTION_BACKWARD(name, isa, dtype, required) &name,
#include "attention/backward_kernels.inc"
#undef TORCHYARD_ATTENTION_BACKWARD
};
const size_t kBackwardKernelCount = sizeof(kBackwardKernels) / sizeof(kBackwardKernels[0]);

const BackwardKernel* select_backward(DType dtype, FeatureSet features, const char* isa) {
  for (const BackwardKernel* kernel : kBackwardKernels) {
    if (kernel->dtype != dtype || (kernel->required & ~features) != 0) continue;
    if (isa == nullptr || std::strcmp(kernel->isa, isa) == 0) return kernel;
  }
  return nullptr;
}

const BackwardKernel* find_backward(const char* name) {
  for (const BackwardKernel* kernel : kBackwardKernels) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace torchyard

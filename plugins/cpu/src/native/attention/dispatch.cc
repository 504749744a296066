#include "attention/dispatch.h"

#include <cstring>

namespace torchyard {

#define TORCHYARD_ATTENTION_FORWARD(name, isa, dtype, required) extern const ForwardKernel name;
#include "attention/kernels.inc"
#undef TORCHYARD_ATTENTION_FORWARD

const ForwardKernel* const kForwardKernels[] = {
#define TORCHYARD_ATTENTION_FORWARD(name, isa, dtype, required) &name,
#include "attention/kernels.inc"
#undef TORCHYARD_ATTENTION_FORWARD
};
const size_t kForwardKernelCount = sizeof(kForwardKernels) / sizeof(kForwardKernels[0]);

const ForwardKernel* select_forward(DType dtype, FeatureSet features, const char* isa) {
  for (const ForwardKernel* kernel : kForwardKernels) {
    if (kernel->dtype != dtype || (kernel->required & ~features) != 0) continue;
    if (isa == nullptr || std::strcmp(kernel->isa, isa) == 0) return kernel;
  }
  return nullptr;
}

const ForwardKernel* find_forward(const char* name) {
  for (const ForwardKernel* kernel : kForwardKernels) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace torchyard

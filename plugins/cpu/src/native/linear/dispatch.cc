#include "linear/dispatch.h"

#include <cstring>

namespace torchyard {

#define TORCHYARD_LINEAR(name, isa, dtype, required) extern const LinearKernel name;
#include "linear/kernels.inc"
#undef TORCHYARD_LINEAR

const LinearKernel* const kLinearKernels[] = {
#define TORCHYARD_LINEAR(name, isa, dtype, required) &name,
#include "linear/kernels.inc"
#undef TORCHYARD_LINEAR
};
const size_t kLinearKernelCount = sizeof(kLinearKernels) / sizeof(kLinearKernels[0]);

const LinearKernel* select_linear(DType dtype, FeatureSet features, const char* isa) {
  for (const LinearKernel* kernel : kLinearKernels) {
    if (kernel->dtype != dtype || (kernel->required & ~features) != 0) continue;
    if (isa == nullptr || std::strcmp(kernel->isa, isa) == 0) return kernel;
  }
  return nullptr;
}

const LinearKernel* find_linear(const char* name) {
  for (const LinearKernel* kernel : kLinearKernels) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace torchyard

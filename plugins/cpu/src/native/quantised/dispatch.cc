#include <cstring>

#include "quantised/quantised.h"

namespace torchyard {

#define TORCHYARD_QUANTISED(name, isa, required) extern const QuantisedKernel name;
#include "quantised/kernels.inc"
#undef TORCHYARD_QUANTISED

const QuantisedKernel* const kQuantisedKernels[] = {
#define TORCHYARD_QUANTISED(name, isa, required) &name,
#include "quantised/kernels.inc"
#undef TORCHYARD_QUANTISED
};
const size_t kQuantisedKernelCount = sizeof(kQuantisedKernels) / sizeof(kQuantisedKernels[0]);

const QuantisedKernel* select_quantised(FeatureSet features) {
  for (const QuantisedKernel* kernel : kQuantisedKernels) {
    if ((kernel->required & ~features) == 0) return kernel;
  }
  return nullptr;
}

const QuantisedKernel* find_quantised(const char* name) {
  for (const QuantisedKernel* kernel : kQuantisedKernels) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace torchyard

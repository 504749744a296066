#include <cstring>

#include "recurrent/recurrent.h"

namespace torchyard {

#define TORCHYARD_RECURRENT(name) extern const RecurrentKernel name;
#include "recurrent/kernels.inc"
#undef TORCHYARD_RECURRENT

const RecurrentKernel* const kRecurrentKernels[] = {
#define TORCHYARD_RECURRENT(name) &name,
#include "recurrent/kernels.inc"
#undef TORCHYARD_RECURRENT
};
const size_t kRecurrentKernelCount = sizeof(kRecurrentKernels) / sizeof(kRecurrentKernels[0]);

const RecurrentKernel* find_recurrent(const char* name) {
  for (const RecurrentKernel* kernel : kRecurrentKernels) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace torchyard

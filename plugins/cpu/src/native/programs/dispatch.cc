#include "programs/dispatch.h"

#include <cstring>

namespace torchyard {

#define TORCHYARD_PROGRAM(name) extern const ProgramKernel name;
#include "programs/kernels.inc"
#undef TORCHYARD_PROGRAM

const ProgramKernel* const kProgramKernels[] = {
#define TORCHYARD_PROGRAM(name) &name,
#include "programs/kernels.inc"
#undef TORCHYARD_PROGRAM
};
const size_t kProgramKernelCount = sizeof(kProgramKernels) / sizeof(kProgramKernels[0]);

const ProgramKernel* select_program(FeatureSet features) {
  const ProgramKernel* const* kernel = kProgramKernels;
  while (((*kernel)->required & ~features) != 0) ++kernel;
  return *kernel;
}

const ProgramKernel* find_program(const char* name) {
  for (const ProgramKernel* kernel : kProgramKernels) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace torchyard

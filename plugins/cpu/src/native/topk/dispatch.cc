#include <cstring>

#include "topk/topk.h"

namespace torchyard {

#define TORCHYARD_TOPK_ISA(isa, required) extern const TopKKernel topk_kernels_##isa[kTopKDTypes];
#include "topk/kernels.inc"
#undef TORCHYARD_TOPK_ISA

#define TORCHYARD_TOPK_ISA(isa, required)                                                         \
  &topk_kernels_##isa[0], &topk_kernels_##isa[1], &topk_kernels_##isa[2], &topk_kernels_##isa[3], \
      &topk_kernels_##isa[4], &topk_kernels_##isa[5], &topk_kernels_##isa[6],                     \
      &topk_kernels_##isa[7], &topk_kernels_##isa[8],
const TopKKernel* const kTopKKernels[] = {
#include "topk/kernels.inc"
};
#undef TORCHYARD_TOPK_ISA
const size_t kTopKKernelCount = sizeof(kTopKKernels) / sizeof(kTopKKernels[0]);

const TopKKernel* select_topk(TopKDType dtype, FeatureSet features) {
  for (const TopKKernel* kernel : kTopKKernels) {
    if (kernel->dtype == dtype && (kernel->required & ~features) == 0) return kernel;
  }
  return nullptr;
}

const TopKKernel* find_topk(const char* name) {
  for (const TopKKernel* kernel : kTopKKernels) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace torchyard

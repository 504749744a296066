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

#define TORCHYARD_ATTENTION_DECODE(name, isa, dtype, required) extern const DecodeKernel name;
#include "attention/decode_kernels.inc"
#undef TORCHYARD_ATTENTION_DECODE

const DecodeKernel* const kDecodeKernels[] = {
#define TORCHYARD_ATTENTION_DECODE(name, isa, dtype, required) &name,
#include "attention/decode_kernels.inc"
#undef TORCHYARD_ATTENTION_DECODE
};
const size_t kDecodeKernelCount = sizeof(kDecodeKernels) / sizeof(kDecodeKernels[0]);

namespace {

template <class Kernel, size_t kCount>
const Kernel* select(const Kernel* const (&table)[kCount], DType dtype, FeatureSet features,
                     const char* isa) {
  for (const Kernel* kernel : table) {
    if (kernel->dtype != dtype || (kernel->required & ~features) != 0) continue;
    if (isa == nullptr || std::strcmp(kernel->isa, isa) == 0) return kernel;
  }
  return nullptr;
}

template <class Kernel, size_t kCount>
const Kernel* find(const Kernel* const (&table)[kCount], const char* name) {
  for (const Kernel* kernel : table) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

}  // namespace

const ForwardKernel* select_forward(DType dtype, FeatureSet features, const char* isa) {
  return select(kForwardKernels, dtype, features, isa);
}

const ForwardKernel* find_forward(const char* name) { return find(kForwardKernels, name); }

const DecodeKernel* select_decode(DType dtype, FeatureSet features, const char* isa) {
  return select(kDecodeKernels, dtype, features, isa);
}

const DecodeKernel* find_decode(const char* name) { return find(kDecodeKernels, name); }

}  // namespace torchyard

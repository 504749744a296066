// Which backward kernel serves a dtype on a given processor. See dispatch.h.
#pragma once

#include <cstddef>

#include "attention/backward.h"

namespace torchyard {

extern const BackwardKernel* const kBackwardKernels[];
extern const size_t kBackwardKernelCount;

const BackwardKernel* select_backward(DType dtype, FeatureSet features, const char* isa);

const BackwardKernel* find_backward(const char* name);

}  // namespace torchyard

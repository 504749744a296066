// Which kernel serves a dtype on a given processor.
#pragma once

#include <cstddef>

#include "linear/linear.h"

namespace torchyard {

extern const LinearKernel* const kLinearKernels[];
extern const size_t kLinearKernelCount;

// Returns the first kernel of the table for `dtype` whose features are all in `features`, or, where
// `isa` is not nullptr, the one compiled for that instruction set. nullptr when there is none.
const LinearKernel* select_linear(DType dtype, FeatureSet features, const char* isa);

const LinearKernel* find_linear(const char* name);

}  // namespace torchyard

// Which kernel serves a dtype on a given processor.
#pragma once

#include <cstddef>

#include "attention/attention.h"
#include "attention/decode.h"

namespace torchyard {

extern const ForwardKernel* const kForwardKernels[];
extern const size_t kForwardKernelCount;

// Returns the first kernel of the table for `dtype` whose features are all in `features`, or, where
// `isa` is not nullptr, the one compiled for that instruction set. nullptr when there is none.
// A pure function: the machine is asked elsewhere (detect_features).
const ForwardKernel* select_forward(DType dtype, FeatureSet features, const char* isa);

const ForwardKernel* find_forward(const char* name);

extern const DecodeKernel* const kDecodeKernels[];
extern const size_t kDecodeKernelCount;

// As select_forward and find_forward, for decoding.
const DecodeKernel* select_decode(DType dtype, FeatureSet features, const char* isa);

const DecodeKernel* find_decode(const char* name);

}  // namespace torchyard

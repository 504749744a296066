// Which interpreter of programs serves a processor.
#pragma once

#include <cstddef>

#include "programs/program.h"

namespace torchyard {

extern const ProgramKernel* const kProgramKernels[];
extern const size_t kProgramKernelCount;

// Returns the first kernel of the table whose features are all in `features`, or, where `isa` is
// not nullptr, the one for that instruction set: "avx512bf16" has that of "avx512", since programs
// compute in float32. nullptr when there is none. The machine is asked elsewhere.
const ProgramKernel* select_program(FeatureSet features, const char* isa);

const ProgramKernel* find_program(const char* name);

}  // namespace torchyard

// Which interpreter of programs serves a processor.
#pragma once

#include <cstddef>

#include "programs/program.h"

namespace torchyard {

extern const ProgramKernel* const kProgramKernels[];
extern const size_t kProgramKernelCount;

// Returns the first kernel of the table whose features are all in `features`; the last has none.
// The machine is asked elsewhere.
const ProgramKernel* select_program(FeatureSet features);

const ProgramKernel* find_program(const char* name);

}  // namespace torchyard

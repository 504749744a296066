// One program over many rectangles: the groups of tensors of a foreach_map.
#pragma once

#include <cstdint>

#include "programs/program.h"

namespace torchyard {

struct PointwiseArgs {
  const Program* program;
  int64_t groups;
  const int64_t* sizes;        // rows and columns of each group
  const ProgramPlace* places;  // of each group: its operands, then its results
};

// Computes all groups with `kernel` on up to `threads` threads, between which work is divided by
// elements. Every element is computed alike, whatever the number of threads. Returns false when
// memory is exhausted.
bool pointwise(const PointwiseArgs& args, const ProgramKernel& kernel, int threads);

}  // namespace torchyard

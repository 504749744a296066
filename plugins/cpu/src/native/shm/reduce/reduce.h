// Element-wise reductions of several arrays, in their order.
//
// out[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ...; kAverage divides the sum by the
// number of sources. float16 and bfloat16 are reduced in float32 and rounded once; integers wrap;
// kLeast and kGreatest return NaN where any source has it. For booleans a sum is "any", a product
// "all"; an average of integers rounds toward zero, one of booleans does not exist, nor do bitwise
// operations on floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/isa/kernel_table.h"

namespace torchyard::shm {

enum class Dtype : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kBool,
};
constexpr int kDtypes = 13;

enum class Operation : uint8_t {
  kSum,
  kAverage,
  kProduct,
  kLeast,
  kGreatest,
  kAnd,
  kOr,
  kXor,
};
constexpr int kOperations = 8;

// `out` may be one of the sources, and overlaps none otherwise; so may `twin`, which is written too
// where it is not null. `count` is of elements.
using Reduction = void (*)(const void* const* sources, int many, size_t count, void* out,
                           void* twin);

size_t element_bytes(Dtype dtype);

// Returns the fastest reduction that this processor runs; null where there is none.
Reduction find_reduction(Dtype dtype, Operation operation);

// The reductions as compiled for one instruction set.
struct ReductionKernel {
  const char* name;
  const char* isa;
  FeatureSet required;
  Reduction (*find)(Dtype dtype, Operation operation);
};

extern const KernelTable<ReductionKernel> kReductionKernels;

}  // namespace torchyard::shm

// The instruction sets of isas.inc as data.
#pragma once

#include "base/isa/cpu_features.h"

namespace torchyard {

struct InstructionSet {
  const char* name;
  FeatureSet required;
};

// One constant per row: isa::avx512.required.
namespace isa {
#define TORCHYARD_ISA(name, processor, options, features, description) \
  constexpr InstructionSet name{#name, features};
#define TORCHYARD_ISA_EXTENSION TORCHYARD_ISA
#include "base/isa/isas.inc"
#undef TORCHYARD_ISA_EXTENSION
#undef TORCHYARD_ISA
}  // namespace isa

// Those that TORCHYARD_CPU_ISA can name, of every processor, in the table's order.
constexpr InstructionSet kInstructionSets[] = {
#define TORCHYARD_ISA(name, processor, options, features, description) isa::name,
#define TORCHYARD_ISA_EXTENSION(name, processor, options, features, description)
#include "base/isa/isas.inc"
#undef TORCHYARD_ISA_EXTENSION
#undef TORCHYARD_ISA
};

}  // namespace torchyard

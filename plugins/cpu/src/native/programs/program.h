// A pointwise program over rectangles of values that lie anywhere in memory.
//
//   results[r](i, j) = program_r(operands[0](i, j), operands[1](i, j), ...)
//
// Floating-point values are float32 inside of a program, whatever they are stored as.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/isa/kernel_table.h"
#include "programs/step.h"

namespace torchyard {

// How values are stored.
enum class Element : int64_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
};
constexpr int64_t kElements = 9;

static inline int64_t element_bytes(Element element) {
  constexpr int64_t kBytes[kElements] = {4, 2, 2, 8, 4, 2, 1, 1, 1};
  return kBytes[static_cast<int64_t>(element)];
}

// Element (0, 0) of an operand's or a result's rectangle, and how far apart, in elements, rows and
// columns are; strides of 0 repeat a value.
struct ProgramPlace {
  char* data;
  int64_t row;
  int64_t column;
};

// The same rectangle from (row, column) on.
static inline ProgramPlace shifted(ProgramPlace place, Element element, int64_t row,
                                   int64_t column) {
  place.data += (row * place.row + column * place.column) * element_bytes(element);
  return place;
}

struct ProgramResult {
  int64_t value;  // an operand of steps; float lanes, int64 lanes for kInt64, else int32 lanes
  Element element;
  int64_t late;  // bits of the operands that are read after the value was computed
};

// Steps read an operand by a load_ step, whose `data` is the operand's number. There are no input_,
// index_ and gather_ steps.
struct Program {
  const ProgramStep* steps;
  int64_t counts[kValueShapes];  // steps per shape
  int64_t slots[kValueShapes];
  int64_t operand_count;
  const Element* operands;
  int64_t result_count;
  const ProgramResult* results;
};

constexpr int64_t kMaxProgramPlaces = 64;

// How one instruction set computes a program. `run` takes rectangles of any size, reads and writes
// nothing outside of them, and neither allocates nor starts threads. A result may be the same
// memory as an operand at the same place, and shares none with another. `memory` holds at least
// `bytes(program)` bytes and is aligned to 64. Few columns are slow: a row of 512 is best.
struct ProgramKernel {
  const char* name;
  const char* isa;
  FeatureSet required;
  size_t (*bytes)(const Program& program);
  void (*run)(const Program& program, const ProgramPlace* operands, const ProgramPlace* results,
              int64_t rows, int64_t columns, std::byte* memory);
};

extern const KernelTable<ProgramKernel> kProgramKernels;

}  // namespace torchyard

// Steps of a pointwise program, and where their values are stored.
//
// A program runs over rectangles of rows and columns. Its values have one of four shapes: one value
// per rectangle (uniform), per row, per column, or per element (tile). Steps come in the order of
// their shapes, and each shape's values live in numbered slots. int64 columns and tiles take two
// consecutive slots.
#pragma once

#include <cstdint>

namespace torchyard {

enum class ProgramOp : int64_t {
#define TORCHYARD_PROGRAM_OP(name) name,
#include "programs/ops.inc"
#undef TORCHYARD_PROGRAM_OP
};

enum ValueShape : int64_t { kUniform, kRow, kColumn, kTile };
constexpr int kValueShapes = 4;

// Operands are slot * 4 + shape.
struct ProgramStep {
  ProgramOp op;
  int64_t out;  // slot; the shape is that of the group that holds the step
  int64_t a;
  int64_t b;
  int64_t c;
  int64_t data;
  int64_t extra;
};
constexpr int kProgramStepWords = sizeof(ProgramStep) / sizeof(int64_t);
constexpr int64_t kMaxProgramSteps = 4096;

}  // namespace torchyard

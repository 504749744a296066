// A program that changes scores between the product of queries and keys and the softmax.
//
// Its values have one of four shapes: one value per head (uniform), per query (row), per key
// (column) or per pair (tile). Steps come in the order of their shapes, and each shape's values
// live in numbered slots. int64 columns and tiles take two consecutive slots.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchyard {

enum class ScoreOp : int64_t {
#define TORCHYARD_SCORE_OP(name) name,
#include "attention/score_ops.inc"
#undef TORCHYARD_SCORE_OP
};

enum ScoreShape : int64_t { kUniform, kRow, kColumn, kTile };
constexpr int kScoreShapes = 4;

// Operands are slot * 4 + shape; kRawScore is the score itself, of tile shape.
constexpr int64_t kRawScore = -1;

struct ScoreStep {
  ScoreOp op;
  int64_t out;  // slot; the shape is that of the group that the step stands in
  int64_t a;
  int64_t b;
  int64_t c;
  int64_t data;
  int64_t extra;
};
constexpr int kScoreStepWords = sizeof(ScoreStep) / sizeof(int64_t);

// An index out of range, of a visible pair; any one of them where there are several.
struct ScoreFailure {
  int64_t step;  // -1: none
  int64_t value;
};

struct ScoreProgram {
  const ScoreStep* steps;
  int64_t counts[kScoreShapes];  // steps per shape
  int64_t slots[kScoreShapes];
  int64_t result;  // operand; float32
  ScoreFailure* failure;
};

constexpr int64_t kMaxScoreSteps = 4096;

}  // namespace torchyard

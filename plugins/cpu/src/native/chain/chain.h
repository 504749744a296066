// What a layer does to one row, one thing after another: products with packed weights, pointwise
// programs between them, and what a norm divides by.
//
// Values lie in tensors that a call is given, in the tensor that it makes, or in working memory.
// The stages are checked when a chain is made, and know their sizes: only addresses, and the
// strides that a stage takes from a given tensor, are a call's own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear/linear.h"
#include "programs/program.h"
#include "quantised/quantised.h"

namespace torchyard {

constexpr int kMaxChainStages = 16;
constexpr int kMaxChainInputs = 16;
// Operands and results of a program.
constexpr int kMaxChainPlaces = 16;

// Where a value is stored: in an input from 0 on, in the output, or in working memory.
constexpr int64_t kChainMade = -1;
constexpr int64_t kChainMemory = -2;

// Element (0, 0) lies `offset` bytes into its base. `row` and `column` are strides in elements; a
// negative row is the stride of dimension -1 - row of the input.
struct ChainPlace {
  int64_t base, offset, row, column;
};

enum class ChainKind : int64_t { kQuantised, kLinear, kScale, kProgram, kCopy };

struct ChainStage {
  ChainKind kind;
  // Of a product and a scale: what is read, what is written, and a product's bias; of a copy the
  // first two.
  ChainPlace x, out, bias;
  bool biased;
  // Of a scale, x being squares: 1 / sqrt(mean(x) + epsilon). Of a copy: rows and bytes of each. Of
  // a program: its rectangle.
  int64_t rows, columns;
  float epsilon;
  // Of the other kind each is as it was made.
  const QuantisedKernel* quantised;
  QuantisedArgs quantised_args;
  const LinearKernel* linear;
  LinearArgs linear_args;
  const ProgramKernel* program_kernel;
  const Program* program;
  ChainPlace places[kMaxChainPlaces];
};

struct Chain {
  ChainStage stages[kMaxChainStages];
  int stage_count;
  // Of all values in working memory, and of the greatest program's own behind them.
  int64_t memory_bytes, program_bytes;
};

// An input's memory, and its strides.
struct ChainInput {
  char* data;
  const int64_t* strides;
};

// Runs the stages on up to `threads` threads; false where memory is exhausted.
bool run_chain(const Chain& chain, const ChainInput* inputs, char* made, int threads);

}  // namespace torchyard

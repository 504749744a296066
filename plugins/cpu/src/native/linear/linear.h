// Products of rows with a weight: out[m, n] = sum over k of x[m, k] * weight[n, k], plus bias[n].
//
// Elements are 16 or 32 bits wide; they become words of 32 bits that hold one float, or two
// bfloat16 where the instruction set multiplies pairs. Sums are float32. What a call needs is cut
// into
//
//   panels   32 outputs side by side: words [depth][32], as the format `panels` keeps them
//   blocks   as many rows of x as accumulators fit: words [depth][rows], packed at each call
//   chunks   of the depth, so that what is packed of a panel stays in the second-level cache
//
// and an item of work is a group of neighbouring panels with a range of blocks. Where the rows of x
// fill some panels and the weight is plain, panels are x's and blocks the weight's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/isa/kernel_table.h"
#include "base/status.h"
#include "programs/program.h"

namespace torchyard {

constexpr int kPanelColumns = 32;
// Words of depth that are packed and multiplied at a time.
constexpr int64_t kChunkWords = 512;
// Panels of an item, so that a block of x is read once for 128 outputs.
constexpr int kGroupPanels = 4;
// Up to so many rows a packed weight is read about as fast as it is multiplied: its float16 is
// widened in the inner loop.
constexpr int kFewRows = 28;
// Rows that `dots` takes at most.
constexpr int kDotRows = 28;
// Rows that `turned` takes at most, so that a chunk of all of x stays in the second-level cache;
// and words of depth at least, so that widening has a chunk beside it, and turning sums is little.
constexpr int kTurnedRows = 128;
constexpr int64_t kTurnedWords = 2 * kChunkWords;

// Row r of batch b begins at data + b * batch + r / inner * outer + r % inner * row elements.
struct LinearRows {
  const void* data;
  int64_t batch, outer, inner, row;
};

// Strides in elements. Plain: one of `row` (outputs) and `column` (depth) is 1. Packed: as the
// format `panels`, contiguous, and the same for every batch.
struct LinearWeight {
  const void* data;
  bool packed;
  int64_t batch, row, column;
};

// A pointwise function before or after the product. Operands of its program are its inputs, one or
// two, then captured tensors, whose places are over all rows of all batches in order and over the
// columns of what the function makes.
struct LinearFunction {
  const ProgramKernel* kernel;
  const Program* program;
  int inputs;
  ProgramPlace places[kMaxProgramPlaces];  // from `inputs` on
};

struct LinearArgs {
  int64_t batches, rows, outputs, depth;
  LinearRows x;
  LinearWeight weight;
  const void* bias;                // [outputs], or nullptr
  void* out;                       // [batches, rows, columns()], contiguous
  const LinearFunction* prologue;  // of x, stored as its elements; or nullptr
  const LinearFunction* epilogue;  // of float32 sums with the bias added; or nullptr

  // An epilogue of two inputs takes the halves of the outputs.
  int halves() const { return epilogue == nullptr ? 1 : epilogue->inputs; }
  int64_t columns() const { return outputs / halves(); }
  int64_t weight_elements() const { return (weight.batch == 0 ? 1 : batches) * outputs * depth; }
};

// A block of rows of one batch.
struct LinearBlock {
  int64_t batch, first;
  int rows;
  // Packed x: [depth_words][rows]; of dot_words(), vector by vector, for dots and for matrix tiles.
  uint32_t* words;
  void* prepared;  // what the prologue made of x: contiguous elements [rows][depth]
};

// What a thread computes at once: some panels with consecutive blocks of one batch.
struct LinearItem {
  const LinearBlock* blocks;
  int64_t block_count;
  int64_t first[kGroupPanels];  // the first output of each panel: those of the second half last
  int panels;
  bool few_rows;      // a packed weight is read from memory about as fast as it is multiplied
  uint32_t* scratch;  // item_words() of them
  std::byte* memory;  // of programs
};

struct LinearKernel {
  const char* name;
  const char* isa;
  DType dtype;
  FeatureSet required;
  int block_rows;
  int pair;  // elements of a word
  // Words of one row as `pack` lays it out, by the depth and the elements of a word.
  int64_t (*row_words)(int64_t depth, int pair);
  // Up to so many rows those of a plain weight are taken as they lie, without packing.
  int dot_rows;
  // Packs a block of x.
  void (*pack)(const LinearArgs& args, const LinearBlock& block);
  // Room of an item of so many rows, and words of depth.
  size_t (*item_words)(int64_t rows, int64_t depth);
  void (*item)(const LinearArgs& args, const LinearItem& item);
  // Likewise where blocks are panels, of kPanelColumns rows, and a plain weight's columns are
  // contiguous; nullptr where `item` is the faster.
  size_t (*turned_words)(int64_t rows);
  void (*turned)(const LinearArgs& args, const LinearItem& item);
  // Rows of x as words, for `dots`: of every row a vector, then of every row the next.
  void (*words)(const LinearArgs& args, const LinearBlock& block);
  // All rows of one batch, at most dot_rows, with the outputs [first, last) of a plain weight whose
  // columns are contiguous.
  // Of halves: of the first, with those of the second beside them. `memory` is of programs.
  void (*dots)(const LinearArgs& args, const LinearBlock& block, int64_t first, int64_t last,
               std::byte* memory);
  // The kernel that takes up to kFewRows rows in its place; nullptr: this one takes them itself.
  // A pointer to the pointer, since kernels are constants of several translation units.
  const LinearKernel* const* few;
};

extern const KernelTable<LinearKernel> kLinearKernels;

static inline int64_t words_of(int64_t depth, int pair) { return (depth + pair - 1) / pair; }

// Words of one row for `dots`: whole vectors of any instruction set.
static inline int64_t dot_words(int64_t depth, int pair) {
  return (words_of(depth, pair) + 15) / 16 * 16;
}

// Runs a kernel on at most `threads` threads; results have the same bits for any number. `poison`
// fills working memory with NaN first. kOutOfMemory: nothing was written.
Status linear(const LinearArgs& args, const LinearKernel& kernel, int threads, bool poison);

}  // namespace torchyard

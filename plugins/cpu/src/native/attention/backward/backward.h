// Attention backward, for the outputs of attention.h. With dout and dlse the gradients of out and
// lse, and ds = 0, p = 0 for invisible pairs:
//
//   delta(i)  = sum_v dout(i, v) * out(i, v) - dlse(i)
//   p(i, j)   = exp(s(i, j) - lse(i))
//   ds(i, j)  = p(i, j) * (dout(i, :) . value(j, :) - delta(i))
//   dvalue(j) = sum_i p(i, j) * dout(i, :)             over all query heads of the kv head
//   dkey(j)   = scale * sum_i ds(i, j) * query(i, :)   likewise
//   dquery(i) = scale * sum_j ds(i, j) * key(j, :)
//
// Where a program modifies scores, s is what it makes of them, and in dkey and dquery ds is
// multiplied by d s / d raw; an element c of a captured tensor gets sum ds(i, j) * d s(i, j) / d c.
//
// Source: FlashAttention-2 (arXiv 2307.08691), algorithm 2; a gradient of lse enters through delta.
//
// A row whose lse is -inf neither gets nor contributes a gradient. The contents of an invisible key
// or value do not affect a row's gradient, nor do those of a row a key that it does not see, NaN
// and infinity included. Sums are float32; where the instruction set multiplies bfloat16 pairs, p
// and ds are rounded to bfloat16 before they are multiplied.
//
// Keys are cut into blocks, each owned by one thread, which sums dkey and dvalue in its own memory.
// dquery is summed in shared memory by the key blocks in ascending order: a block waits until the
// block before it that sees the same rows is through with them. No sum depends on which thread came
// first, nor on where keys are cut, so the result has the same bits for every number of threads.
// Gradients of captured tensors are summed in a few copies, or in the shared tensor itself; where
// keys are cut and which key blocks add to one copy, in which order, depends on sizes alone.
//
// The caller guarantees what attention.h asks for, for grad_out and out too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention.h"

namespace torchyard {

struct BackwardArgs {
  ForwardArgs call;  // out is read here, and so is lse, which must not be nullptr
  Strided grad_out;
  const float* grad_lse;  // [batches, query_heads, query_rows] contiguous; nullptr: zeros
  const ScoreGradient* score_gradient = nullptr;  // nullptr where call.score is
  StridedOutput grad_query;
  StridedOutput grad_key;
  StridedOutput grad_value;
};

// The most that a key block and a block of rows hold; sizes a thread's scratch.
struct BackwardCapacity {
  int64_t rows;
  int64_t panels;  // at most Layout's kStripPanels
};

// The panels of keys that one thread owns while all rows pass over them.
struct KeyBlock {
  BackwardCapacity capacity;
  int64_t batch;
  int64_t key_head;
  int64_t first_panel;
  int64_t panel_count;
  std::byte* scratch;
};

// Consecutive rows of one query head.
struct RowBlock {
  int64_t query_head;
  int64_t first_row;
  int64_t row_count;
  const Panel* panels;  // of the key block, ascending
  int64_t panel_count;
  float* grad_query;      // the rows' running sums
  bool first;             // no key block before this one sees the rows: the sums begin here
  bool last;              // none after it does: the gradient is written
  void* const* captured;  // sums per captured tensor: float of a shared one, else double
};

// One compiled kernel: `open` a key block, pass `rows` over it, `close` it.
struct BackwardKernel {
  const char* name;
  const char* isa;
  DType dtype;
  FeatureSet required;
  int tile_rows;
  size_t (*scratch_bytes)(const BackwardArgs&, const BackwardCapacity&);
  size_t (*grad_query_bytes)(const BackwardArgs&, int64_t rows);
  void (*open)(const BackwardArgs&, const KeyBlock&);
  void (*rows)(const BackwardArgs&, const KeyBlock&, const RowBlock&);
  void (*close)(const BackwardArgs&, const KeyBlock&);
};

extern const KernelTable<BackwardKernel> kBackwardKernels;

// Runs `kernel` as attention_forward does its own.
Status attention_backward(const BackwardArgs& args, const BackwardKernel& kernel, int threads,
                          bool poison);

}  // namespace torchyard

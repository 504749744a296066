// Recurrent layers in the layout of torch's parameters: LSTM, GRU, and plain ones.
//
//   gates(t)  = Wx x(t) + bx + Wh h(t - 1) + bh, one row of H per gate
//   LSTM      c = s(f) c + s(i) tanh(g);  h = s(o) tanh(c), or Wr times that
//   GRU       n = tanh(Wx x + bx + s(r) (Wh h + bh));  h = (1 - s(z)) n + s(z) h
//   plain     h = tanh(gate) or max(0, gate)
//
// The products with all inputs of a stretch of steps are taken at once; then each step multiplies
// the hidden state with its weights and applies the gates while the sums are in the first cache.
// Weights lie in panels: of 16 units (say) all gates side by side, so that whoever computes a
// panel has everything that these units' new state needs.
//
// Elements are float32, bfloat16 or float16; sums, gates and the cell state are float32. The hidden
// state is rounded to the element type at each step, to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/isa/kernel_table.h"
#include "base/status.h"

namespace torchyard {

enum class RecurrentKind : int64_t { kLstm, kGru, kTanh, kRelu };
constexpr int64_t kRecurrentKinds = 4;

// The sizes that weights have.
struct RecurrentSizes {
  RecurrentKind kind;
  int64_t inputs;   // I
  int64_t hidden;   // H
  int64_t outputs;  // P: H, or the size after projection
  int64_t layers;
  int64_t directions;  // 1 or 2
  bool projected;      // LSTM only

  int64_t gates() const {
    return kind == RecurrentKind::kLstm ? 4 : kind == RecurrentKind::kGru ? 3 : 1;
  }
  // Vectors per panel: the gates, or four vectors of units where there is one gate.
  int64_t vectors() const { return kind == RecurrentKind::kGru ? 3 : 4; }
  int64_t inputs_of(int64_t layer) const { return layer == 0 ? inputs : outputs * directions; }
};

// The parameters of one layer and direction: contiguous elements. nullptr: there is none.
struct CellWeights {
  const void* w_ih;  // [gates * H, I of the layer]
  const void* w_hh;  // [gates * H, P]
  const void* b_ih;  // [gates * H]
  const void* b_hh;
  const void* w_hr;  // [P, H]
};

struct RecurrentArgs {
  RecurrentSizes sizes;
  int64_t steps;
  int64_t batch;
  const void* input;  // elements at t * input_step + b * input_row + i
  int64_t input_step;
  int64_t input_row;
  const void* hidden;       // [layers * directions, B, P] contiguous
  const void* cell;         // [layers * directions, B, H] contiguous; LSTM only
  const std::byte* packed;  // what recurrent_pack wrote
  const int64_t* lengths;   // [B], 1 to steps; nullptr: all have all steps
  void* output;             // [T, B, directions * P] contiguous
  void* hidden_out;         // as hidden
  void* cell_out;           // as cell
  float* reserve;           // [layers * directions, T, B, columns] contiguous, or nullptr
};

// Part of a matrix [gates * units, columns] that becomes panels.
struct RecurrentPackJob {
  const void* weight;
  int64_t gates;
  int64_t units;
  int64_t columns;
  int64_t vectors;
  std::byte* panels;
  int64_t first_panel;
  int64_t end_panel;
};

// rows x panels of products: out(r, p * vectors * lanes + j) = bias(likewise) + sum.
struct RecurrentProductJob {
  const void* rows;  // operands
  int64_t row_stride;
  int64_t row_count;
  const std::byte* panels;
  int64_t words;
  int64_t vectors;
  int64_t first_panel;
  int64_t end_panel;
  const float* bias;
  float* out;
  int64_t out_stride;
};

// One step of some panels' units, for the whole batch.
struct RecurrentStepJob {
  RecurrentKind kind;
  bool projection;  // h = Wr (o tanh(c)): the panels are Wr's, and `before` is o tanh(c)
  int64_t batch;
  int64_t units;  // that exist, of all panels
  const std::byte* panels;
  int64_t words;
  int64_t first_panel;
  int64_t end_panel;
  const float* bias;    // of the recurrent product
  const float* inputs;  // the inputs' products of this step, [B][inputs_stride]
  int64_t inputs_stride;
  const void* before;  // operands: [B][state_stride]
  int64_t before_stride;
  const void* state;  // the hidden state before, operands; read where a sequence has ended
  void* after;        // the hidden state after; nullptr where a projection follows
  int64_t state_stride;
  float* cell;  // [B][cell_stride]
  int64_t cell_stride;
  void* unprojected;  // operands: o tanh(c), or nullptr
  int64_t unprojected_stride;
  void* output;  // elements of this step and direction, [B][output_stride], or nullptr
  int64_t output_stride;
  float* reserve;  // of this step, [B][reserve_stride], or nullptr
  int64_t reserve_stride;
  int64_t hidden;          // H
  const int64_t* lengths;  // or nullptr
  int64_t step;
};

// One compiled kernel. An operand is what a product's left side is kept in: a float, or a bfloat16
// where pairs of them are multiplied; a word is as many as fit 32 bits.
struct RecurrentKernel {
  const char* name;
  const char* isa;
  DType dtype;
  FeatureSet required;
  int64_t lanes;
  int64_t pair;  // operands, and columns of a weight, per word
  int64_t rows;  // of operands that are read together, whether they exist or not
  int64_t operand_bytes;
  int64_t element_bytes;
  int64_t lane_bytes;  // of a weight's word in a panel
  void (*pack)(const RecurrentPackJob&);
  void (*product)(const RecurrentProductJob&);
  void (*step)(const RecurrentStepJob&);
  // Of `count` values each; operands are written up to `padded` with zeros.
  void (*to_operands)(const void* elements, void* operands, int64_t count, int64_t padded);
  void (*from_operands)(const void* operands, void* elements, int64_t count);
  void (*widen)(const void* elements, float* floats, int64_t count);
  void (*narrow)(const float* floats, void* elements, int64_t count);
};

// The size of what recurrent_pack writes; it lies aligned to 64 bytes.
size_t recurrent_packed_bytes(const RecurrentSizes& sizes, const RecurrentKernel& kernel);

// Lays out the weights of all layers and directions for a kernel.
Status recurrent_pack(const RecurrentSizes& sizes, const CellWeights* weights,
                      const RecurrentKernel& kernel, std::byte* packed, int threads);

// Runs all layers on up to `threads` threads. The result has the same bits for every number of
// threads. `poison` fills all working memory with NaN first.
Status recurrent_forward(const RecurrentArgs& args, const RecurrentKernel& kernel, int threads,
                         bool poison);

// The same for weights as they are; args.packed is not read. They are packed into memory that the
// calling thread keeps, where that is not much.
Status recurrent_forward_packing(const RecurrentArgs& args, const CellWeights* weights,
                                 const RecurrentKernel& kernel, int threads);

extern const KernelTable<RecurrentKernel> kRecurrentKernels;

}  // namespace torchyard

// Reads recurrent weights as torch's modules hold them.
#pragma once

#include "bindings/recurrent/arguments.h"
#include "bindings/tensor_reader.h"
#include "recurrent/recurrent.h"

namespace torchyard {

// Weights of all layers and directions.
struct PlainWeights {
  RecurrentSizes sizes;
  bool bias;
  CellWeights cells[kMostRecurrentCells];
};

// Reads a tuple of tensors. False where they are not contiguous ones of `dtype` whose number and
// shapes fit; with an exception set only where Python code failed.
class PlainReader {
 public:
  explicit PlainReader(TensorDType dtype) : dtype_(dtype) {}

  bool read(PyObject* weights, RecurrentKind kind, int64_t layers, int64_t directions,
            PlainWeights* out) const {
    const int64_t given = PyTuple_Size(weights);
    const int64_t cells = layers * directions;
    if (layers < 1 || cells > kMostRecurrentCells || given % cells != 0) return false;
    const int64_t each = given / cells;
    const bool projected = each % 2 == 1;
    if (each < 2 || each > 5 || (projected && kind != RecurrentKind::kLstm)) return false;
    out->bias = each >= 4;
    RecurrentSizes& sizes = out->sizes;
    sizes = {kind, 0, 0, 0, layers, directions, projected};
    for (int64_t i = 0; i < given; ++i) {
      TensorView view;
      if (!tensor_reader().read(PyTuple_GetItem(weights, i), &view) || view.dtype != dtype_ ||
          !is_contiguous(view) || !place(view, i / each, i % each, each, out)) {
        return false;
      }
    }
    return true;
  }

 private:
  // Takes weight `part` of `each` of a cell.
  static bool place(const TensorView& view, int64_t cell, int64_t part, int64_t each,
                    PlainWeights* out) {
    RecurrentSizes& sizes = out->sizes;
    CellWeights& cells = out->cells[cell];
    const int64_t gates = sizes.gates();
    const bool last = sizes.projected && part == each - 1;
    const int64_t rows = gates * sizes.hidden;
    if (part == 0) {
      cells = {};
      if (view.dim != 2) return false;
      if (cell == 0) {
        sizes.hidden = view.sizes[0] / gates;
        sizes.inputs = view.sizes[1];
      }
      cells.w_ih = view.data;
      // Of a first layer the size of outputs is not needed.
      return sizes.hidden >= 1 && view.sizes[0] == gates * sizes.hidden &&
             view.sizes[1] == sizes.inputs_of(cell / sizes.directions);
    }
    if (part == 1) {
      if (view.dim != 2 || view.sizes[0] != rows) return false;
      if (cell == 0) sizes.outputs = view.sizes[1];
      cells.w_hh = view.data;
      return view.sizes[1] == sizes.outputs && sizes.outputs >= 1 &&
             (sizes.projected || sizes.outputs == sizes.hidden);
    }
    if (last) {
      cells.w_hr = view.data;
      return view.dim == 2 && view.sizes[0] == sizes.outputs && view.sizes[1] == sizes.hidden;
    }
    (part == 2 ? cells.b_ih : cells.b_hh) = view.data;
    return view.dim == 1 && view.sizes[0] == rows;
  }

  const TensorDType dtype_;
};

}  // namespace torchyard

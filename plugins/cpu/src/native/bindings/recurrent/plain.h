// Reads recurrent weights as torch's modules hold them.
#pragma once

#include "bindings/recurrent/arguments.h"
#include "bindings/torch_tensors.h"
#include "recurrent/recurrent.h"

namespace torchyard {

// Weights of all layers and directions.
struct PlainWeights {
  RecurrentSizes sizes;
  bool bias;
  CellWeights cells[kMostRecurrentCells];
};

// Reads a list or a tuple of tensors. False where they are not contiguous ones of `dtype` whose
// number and shapes fit; with an exception set only where Python's own code failed.
class PlainReader {
 public:
  PlainReader(const Torch& torch, int32_t dtype) : torch_(torch), dtype_(dtype) {}

  bool read(PyObject* weights, RecurrentKind kind, int64_t layers, int64_t directions,
            PlainWeights* out) const {
    const bool list = PyList_CheckExact(weights);
    if (!list && !PyTuple_CheckExact(weights)) return false;
    const int64_t given = list ? PyList_Size(weights) : PyTuple_Size(weights);
    const int64_t cells = layers * directions;
    if (layers < 1 || cells > kMostRecurrentCells || given % cells != 0) return false;
    const int64_t each = given / cells;
    const bool projected = each % 2 == 1;
    if (each < 2 || each > 5 || (projected && kind != RecurrentKind::kLstm)) return false;
    out->bias = each >= 4;
    RecurrentSizes& sizes = out->sizes;
    sizes = {kind, 0, 0, 0, layers, directions, projected};
    for (int64_t i = 0; i < given; ++i) {
      PyObject* object = list ? PyList_GetItem(weights, i) : PyTuple_GetItem(weights, i);
      SeenTensor seen;
      if (!torch_.see(object, &seen) || seen.dtype != dtype_ || !is_contiguous(seen) ||
          !place(seen, i / each, i % each, each, out)) {
        return false;
      }
    }
    return true;
  }

 private:
  // Takes weight `part` of `each` of a cell.
  static bool place(const SeenTensor& seen, int64_t cell, int64_t part, int64_t each,
                    PlainWeights* out) {
    RecurrentSizes& sizes = out->sizes;
    CellWeights& cells = out->cells[cell];
    const int64_t gates = sizes.gates();
    const bool last = sizes.projected && part == each - 1;
    const int64_t rows = gates * sizes.hidden;
    if (part == 0) {
      cells = {};
      if (seen.dim != 2) return false;
      if (cell == 0) {
        sizes.hidden = seen.sizes[0] / gates;
        sizes.inputs = seen.sizes[1];
      }
      cells.w_ih = seen.data;
      // Of a first layer the size of outputs is not needed.
      return sizes.hidden >= 1 && seen.sizes[0] == gates * sizes.hidden &&
             seen.sizes[1] == sizes.inputs_of(cell / sizes.directions);
    }
    if (part == 1) {
      if (seen.dim != 2 || seen.sizes[0] != rows) return false;
      if (cell == 0) sizes.outputs = seen.sizes[1];
      cells.w_hh = seen.data;
      return seen.sizes[1] == sizes.outputs && sizes.outputs >= 1 &&
             (sizes.projected || sizes.outputs == sizes.hidden);
    }
    if (last) {
      cells.w_hr = seen.data;
      return seen.dim == 2 && seen.sizes[0] == sizes.outputs && seen.sizes[1] == sizes.hidden;
    }
    (part == 2 ? cells.b_ih : cells.b_hh) = seen.data;
    return seen.dim == 1 && seen.sizes[0] == rows;
  }

  const Torch& torch_;
  const int32_t dtype_;
};

}  // namespace torchyard

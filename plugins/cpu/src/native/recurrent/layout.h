// Where the parts of packed weights lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/math.h"
#include "recurrent/recurrent.h"

namespace torchyard {

// A matrix as panels.
struct Panels {
  int64_t units;  // rows per gate
  int64_t gates;
  int64_t columns;
  int64_t vectors;  // per panel
  int64_t words;    // per row
  int64_t count;    // of panels

  Panels(const RecurrentKernel& kernel, int64_t units_, int64_t gates_, int64_t columns_,
         int64_t vectors_)
      : units(units_),
        gates(gates_),
        columns(columns_),
        vectors(vectors_),
        words(ceil_div(columns_, kernel.pair)),
        count(ceil_div(units_, vectors_ / gates_ * kernel.lanes)) {}

  // Floats of a row of sums.
  int64_t width(const RecurrentKernel& kernel) const { return count * vectors * kernel.lanes; }
  int64_t bytes(const RecurrentKernel& kernel) const {
    return width(kernel) * words * kernel.lane_bytes;
  }
};

// The parts of one layer and direction, as byte offsets from the start of all packed weights.
struct CellLayout {
  Panels ih;
  Panels hh;
  Panels hr;
  int64_t ih_at;
  int64_t hh_at;
  int64_t hr_at;
  int64_t inputs_bias_at;     // floats: what joins the inputs' products
  int64_t recurrent_bias_at;  // floats: what joins the recurrent product; a GRU's third gate
  int64_t end;

  CellLayout(const RecurrentSizes& sizes, const RecurrentKernel& kernel, int64_t index)
      : CellLayout(sizes, kernel, index, start_of(sizes, kernel, index)) {}

 private:
  CellLayout(const RecurrentSizes& sizes, const RecurrentKernel& kernel, int64_t index,
             int64_t start)
      : ih(kernel, sizes.hidden, sizes.gates(), sizes.inputs_of(index / sizes.directions),
           sizes.vectors()),
        hh(kernel, sizes.hidden, sizes.gates(), sizes.outputs, sizes.vectors()),
        hr(kernel, sizes.outputs, 1, sizes.hidden, 4) {
    const int64_t bias = aligned(hh.width(kernel) * static_cast<int64_t>(sizeof(float)));
    ih_at = start;
    hh_at = ih_at + aligned(ih.bytes(kernel));
    hr_at = hh_at + aligned(hh.bytes(kernel));
    inputs_bias_at = hr_at + (sizes.projected ? aligned(hr.bytes(kernel)) : 0);
    recurrent_bias_at = inputs_bias_at + bias;
    end = recurrent_bias_at + bias;
  }

  static int64_t aligned(int64_t bytes) { return ceil_div(bytes, 64) * 64; }

  // The first layer has its own number of inputs; all others have the same.
  static int64_t start_of(const RecurrentSizes& sizes, const RecurrentKernel& kernel,
                          int64_t index) {
    const int64_t first = index < sizes.directions ? index : sizes.directions;
    int64_t start = first * CellLayout(sizes, kernel, 0, 0).end;
    if (index > first) {
      start += (index - first) * CellLayout(sizes, kernel, sizes.directions, 0).end;
    }
    return start;
  }
};

}  // namespace torchyard

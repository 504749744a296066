// Reads the sizes that functions of quantised weights are given.
#pragma once

#include "bindings/arguments.h"
#include "quantised/quantised.h"

namespace torchyard {

// Reads (rows, columns, depth, element, bits, group, bytes).
inline bool read_quantised_sizes(PyObject* tuple, QuantisedArgs* args) {
  int64_t d[7];
  if (!read_integers(tuple, "sizes", 7, d)) return false;
  if (d[0] < 0 || d[1] < 0 || d[2] < 1 || d[3] < 0 || d[3] > 2 || (d[4] != 8 && d[4] != 4) ||
      (d[5] != 0 && (d[5] < kQuantisedPad || d[5] % 32 != 0 || d[5] > kLongestSegment))) {
    PyErr_SetString(
        PyExc_ValueError,
        "sizes: expected rows and columns of at least 0, a depth of at least 1, a known "
        "dtype, 8 or 4 bits, and groups of a multiple of 32 up to 4096");
    return false;
  }
  args->rows = d[0];
  args->columns = d[1];
  args->depth = d[2];
  args->element = static_cast<QuantisedElement>(d[3]);
  args->bits = static_cast<int>(d[4]);
  args->group = d[5];
  args->bytes = d[6] != 0;
  return true;
}

}  // namespace torchyard

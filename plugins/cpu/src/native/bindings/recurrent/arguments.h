// Reads the sizes that recurrent functions are given.
#pragma once

#include "bindings/arguments.h"
#include "recurrent/recurrent.h"

namespace torchyard {

constexpr int64_t kMostRecurrentCells = 256;

// `tuple` is kind, I, H, P, layers, directions, whether projected.
inline bool read_recurrent_sizes(PyObject* tuple, RecurrentSizes* out) {
  int64_t s[7];
  if (!read_integers(tuple, "sizes", 7, s)) return false;
  const bool fits = s[0] >= 0 && s[0] < kRecurrentKinds && s[1] >= 0 && s[2] >= 1 && s[3] >= 1 &&
                    s[4] >= 1 && (s[5] == 1 || s[5] == 2) && s[4] * s[5] <= kMostRecurrentCells &&
                    (s[6] == 0 ? s[2] == s[3] : s[6] == 1 && s[0] == 0);
  if (!fits) {
    PyErr_SetString(PyExc_ValueError,
                    "sizes: expected a kind, I, H, P, layers, 1 or 2 directions and whether there "
                    "is a projection, without one P = H");
    return false;
  }
  *out = {static_cast<RecurrentKind>(s[0]), s[1], s[2], s[3], s[4], s[5], s[6] != 0};
  return true;
}

}  // namespace torchyard

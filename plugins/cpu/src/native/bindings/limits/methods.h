// The machine's limits, for Python: see torchyard_cpu/_native.pyi.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace torchyard {

// Adds the functions to the module; 0, or -1 with an exception set.
int add_limits(PyObject* module);

}  // namespace torchyard

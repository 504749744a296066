// Selection, for Python: see topk in torchyard_cpu/_native.pyi.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace torchyard {

// Adds the functions to the module; 0, or -1 with an exception set.
int add_topk(PyObject* module);

}  // namespace torchyard

// Calls that are served without Python's help: see torchyard_cpu/_native.pyi, DirectForward.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace torchyard {

// Adds the function `direct_forward` to the module; 0, or -1 with an exception set.
int add_direct(PyObject* module);

}  // namespace torchyard

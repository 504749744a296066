// Adds the functions of recurrent layers to the module.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace torchyard {

// Returns 0, or -1 with a Python exception set.
int add_recurrent(PyObject* module);

}  // namespace torchyard

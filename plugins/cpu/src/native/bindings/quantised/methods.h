// Products with quantised weights, as functions of the module.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace torchyard {

// Adds them; -1 with an exception set where that fails.
int add_quantised(PyObject* module);

}  // namespace torchyard

// The module's functions for linear layers.
#pragma once

#include <Python.h>

namespace torchyard {

// Adds them to the module; -1 and a Python exception where that fails.
int add_linear(PyObject* module);

}  // namespace torchyard

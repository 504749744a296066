// The module's chains.
#pragma once

#include <Python.h>

namespace torchyard {

// Adds them to the module; -1 and a Python exception where that fails.
int add_chain(PyObject* module);

}  // namespace torchyard

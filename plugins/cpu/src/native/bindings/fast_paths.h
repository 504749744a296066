// The fast paths of all ops, as the module adds them.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace torchyard {

// Adds all ops' functions to the module; 0, or -1 with an exception set.
// Nothing else names an op's path, so that a module without torch's tensors leaves out this one.
int add_fast_paths(PyObject* module);

}  // namespace torchyard

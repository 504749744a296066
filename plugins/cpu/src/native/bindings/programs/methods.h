// The Python module's functions on programs.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace torchyard {

// Adds them; -1 with an exception set where that fails.
int add_programs(PyObject* module);

}  // namespace torchyard

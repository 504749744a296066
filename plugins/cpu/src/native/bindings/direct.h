// Calls that are served without Python's help, from torch's own tensors in memory: see
// torchyard_cpu/_native.pyi, DirectForward and its like.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace torchyard {

// Adds them all to the module; 0, or -1 with an exception set. Nothing else names a part, so that a
// module without torch's tensors leaves out this one.
int add_direct(PyObject* module);

// Its parts, likewise.
int add_addresses(PyObject* module);
int add_attention_direct(PyObject* module);
int add_chain(PyObject* module);
int add_linear_direct(PyObject* module);
int add_linear_fused(PyObject* module);
int add_pointwise_direct(PyObject* module);
int add_recurrent_direct(PyObject* module);
int add_topk_direct(PyObject* module);

}  // namespace torchyard

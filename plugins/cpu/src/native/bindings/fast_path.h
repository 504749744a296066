// One Python type, FastPath, for the paths of all ops: calls of tensors that native code reads and
// computes by itself. See torchyard_cpu/_native.pyi.
//
// An op gives a class Path with
//   PyObject* try_call(PyObject* const* argv, Py_ssize_t argc);
//   PyObject* enable(PyObject* const* argv, Py_ssize_t argc);
//   void clear();
//   void end();  // drops references
// and a function of the module that returns `make_fast_path(path)`.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <new>

#include "bindings/tensor_reader.h"

namespace torchyard {

// What FastPath's methods do for an op.
struct FastPathMethods {
  PyObject* (*try_call)(void* path, PyObject* const* argv, Py_ssize_t argc);
  PyObject* (*enable)(void* path, PyObject* const* argv, Py_ssize_t argc);
  void (*clear)(void* path);
  void (*end)(void* path);
};

// Takes the path over, whose memory is Python's; null with an exception set.
PyObject* new_fast_path(void* path, const FastPathMethods* methods);

// Makes an object of a path in Python's memory, for which the constructor's arguments are given;
// null with an exception set.
template <class Path>
Path* allocate_path() {
  void* memory = PyMem_Malloc(sizeof(Path));
  if (memory == nullptr) {
    PyErr_NoMemory();
    return nullptr;
  }
  return new (memory) Path();
}

// Ends a path that no Python object holds.
template <class Path>
PyObject* drop_path(Path* path) {
  path->end();
  PyMem_Free(path);
  return nullptr;
}

template <class Path>
PyObject* make_fast_path(Path* path) {
  static constexpr FastPathMethods methods = {
      [](void* self, PyObject* const* argv, Py_ssize_t argc) {
        return static_cast<Path*>(self)->try_call(argv, argc);
      },
      [](void* self, PyObject* const* argv, Py_ssize_t argc) {
        return static_cast<Path*>(self)->enable(argv, argc);
      },
      [](void* self) { static_cast<Path*>(self)->clear(); },
      [](void* self) {
        static_cast<Path*>(self)->end();
        PyMem_Free(self);
      },
  };
  return new_fast_path(path, &methods);
}

// Ends a call that the path does not compute: null where an exception is set, else None.
inline PyObject* not_computed() {
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

// Ends a call whose outputs could not be made: None, so that torch's dispatcher makes them, or says
// in its own words why it cannot.
inline PyObject* without_outputs() {
  PyErr_Clear();
  Py_RETURN_NONE;
}

// Checks the number of arguments of `try_call`.
inline bool takes_arguments(Py_ssize_t expected, Py_ssize_t given) {
  if (given == expected) return true;
  PyErr_Format(PyExc_TypeError, "try_call: expected %zd arguments, got %zd", expected, given);
  return false;
}

// A function of the module, for its table.
inline PyMethodDef path_maker(const char* name,
                              PyObject* (*make)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(make)), METH_FASTCALL,
          "Return a FastPath with nothing enabled."};
}

// Add an op's functions to the module; 0, or -1 with an exception set. See fast_paths.h.
int add_attention_fast_path(PyObject* module);
int add_chain_fast_path(PyObject* module);
int add_linear_fast_path(PyObject* module);
int add_linear_fused_fast_path(PyObject* module);
int add_pointwise_fast_path(PyObject* module);
int add_quantised_fast_path(PyObject* module);
int add_recurrent_fast_path(PyObject* module);
int add_topk_fast_path(PyObject* module);

}  // namespace torchyard

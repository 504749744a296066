// The paths of all ops: calls of tensors that native code reads and computes by itself. See
// torchyard_cpu/_native.pyi.
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

// The name of the capsules that own paths.
constexpr char kPathCapsule[] = "torchyard_cpu._native.path";

// Takes the path over: a tuple (try_call, enable, clear) of functions that share it; null with an
// exception set.
template <class Path>
PyObject* make_fast_path(Path* path) {
  struct Functions {
    static Path* path_of(PyObject* capsule) {
      return static_cast<Path*>(PyCapsule_GetPointer(capsule, kPathCapsule));
    }
    static PyObject* try_call(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
      return tensor_reader().begin_call() ? path_of(self)->try_call(argv, argc) : nullptr;
    }
    static PyObject* enable(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
      return path_of(self)->enable(argv, argc);
    }
    static PyObject* clear(PyObject* self, PyObject*) {
      path_of(self)->clear();
      Py_RETURN_NONE;
    }
    static void end(PyObject* capsule) { drop_path(path_of(capsule)); }
  };
  // Functions keep their definitions for good.
  static PyMethodDef definitions[] = {
      {"try_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(Functions::try_call)),
       METH_FASTCALL, "Compute a call whose request was enabled; None for any other."},
      {"enable", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(Functions::enable)),
       METH_FASTCALL, "Compute calls that make a request from now on."},
      {"clear", Functions::clear, METH_NOARGS, "Forget every request."},
  };
  if (!tensor_reader().is_connected()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "fast path: expected connect_torch to have returned True before");
    return drop_path(path);
  }
  PyObject* capsule = PyCapsule_New(path, kPathCapsule, Functions::end);
  if (capsule == nullptr) return drop_path(path);
  PyObject* functions = PyTuple_New(3);
  for (Py_ssize_t i = 0; functions != nullptr && i < 3; ++i) {
    PyObject* function = PyCFunction_New(&definitions[i], capsule);
    if (function == nullptr || PyTuple_SetItem(functions, i, function) != 0) Py_CLEAR(functions);
  }
  Py_DECREF(capsule);
  return functions;
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
          "Return a path with nothing enabled."};
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

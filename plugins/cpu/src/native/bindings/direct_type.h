// What the types that serve decided calls have in common.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>

#include "bindings/arguments.h"

namespace torchyard {

// Reads a request, in words of eight bytes; false with an exception set.
template <class Asked>
bool read_request(PyObject* tuple, Asked* out) {
  constexpr Py_ssize_t kWords = sizeof(Asked) / 8;
  int64_t words[kWords];
  if (!read_integers(tuple, "request", kWords, words)) return false;
  std::memcpy(out, words, sizeof(Asked));
  return true;
}

// Serves calls that make the request from now on. Its dtype is one of the first `dtypes`.
template <class Direct, class Asked>
PyObject* admit_request(PyObject* self, PyObject* tuple, int64_t dtypes) {
  Asked asked;
  if (!read_request(tuple, &asked)) return nullptr;
  if (asked.dtype < 0 || asked.dtype >= dtypes) {
    PyErr_SetString(PyExc_ValueError, "request: expected a dtype that has kernels");
    return nullptr;
  }
  reinterpret_cast<Direct*>(self)->admitted.add(asked);
  Py_RETURN_NONE;
}

// Ends an object that holds torch's functions.
template <class Direct>
void end_direct(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<Direct*>(self)->torch.disconnect();
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

// Adds a type, and the functions that make objects of it, to the module; 0, or -1 with an exception
// set.
inline int add_direct_type(PyObject* module, PyType_Spec* spec, const char* name,
                           PyMethodDef* functions, PyTypeObject** type) {
  PyObject* made = PyType_FromSpec(spec);
  if (made == nullptr) return -1;
  *type = reinterpret_cast<PyTypeObject*>(made);
  Py_INCREF(made);
  if (PyModule_AddObject(module, name, made) != 0) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace torchyard

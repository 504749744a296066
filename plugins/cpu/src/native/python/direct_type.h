// What the types that serve decided calls have in common.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>

#include "python/arguments.h"

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

}  // namespace torchyard

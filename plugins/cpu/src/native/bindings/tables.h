// What every family of kernels offers Python: its table, and the choice of a kernel for a dtype.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>
#include <initializer_list>

#include "base/dtype.h"
#include "base/isa/kernel_table.h"

namespace torchyard {

inline const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  return "";
}

template <class Kernel>
PyObject* select_name(const char* function, PyObject* const* argv, Py_ssize_t argc,
                      const KernelTable<Kernel>& table) {
  if (argc != 3) {
    PyErr_Format(PyExc_TypeError, "%s: expected 3 arguments, got %zd", function, argc);
    return nullptr;
  }
  const char* dtype = PyUnicode_AsUTF8AndSize(argv[0], nullptr);
  if (dtype == nullptr) return nullptr;
  FeatureSet features = 0;
  PyObject* iterator = PyObject_GetIter(argv[1]);
  if (iterator == nullptr) return nullptr;
  while (PyObject* item = PyIter_Next(iterator)) {
    const char* name = PyUnicode_AsUTF8AndSize(item, nullptr);
    if (name != nullptr) features |= feature_from_name(name);
    Py_DECREF(item);
    if (name == nullptr) break;
  }
  Py_DECREF(iterator);
  if (PyErr_Occurred() != nullptr) return nullptr;
  const char* isa = nullptr;
  if (argv[2] != Py_None) {
    isa = PyUnicode_AsUTF8AndSize(argv[2], nullptr);
    if (isa == nullptr) return nullptr;
  }
  for (const DType known : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (std::strcmp(dtype_name(known), dtype) != 0) continue;
    const Kernel* kernel = table.select(known, features, isa);
    if (kernel == nullptr) Py_RETURN_NONE;
    return PyUnicode_FromString(kernel->name);
  }
  Py_RETURN_NONE;
}

// A tuple of the names of `features`.
inline PyObject* feature_names(FeatureSet features) {
  Py_ssize_t count = 0;
  for (size_t i = 0; i < kFeatureCount; ++i) {
    count += (features & kFeatureNames[i].feature) != 0;
  }
  PyObject* names = PyTuple_New(count);
  if (names == nullptr) return nullptr;
  Py_ssize_t at = 0;
  for (size_t i = 0; i < kFeatureCount; ++i) {
    if ((features & kFeatureNames[i].feature) == 0) continue;
    PyObject* name = PyUnicode_FromString(kFeatureNames[i].name);
    if (name == nullptr || PyTuple_SetItem(names, at++, name) != 0) {
      Py_DECREF(names);
      return nullptr;
    }
  }
  return names;
}

template <class Kernel>
PyObject* kernel_table(const KernelTable<Kernel>& kernels) {
  const Py_ssize_t count = static_cast<Py_ssize_t>(kernels.size());
  PyObject* rows = PyTuple_New(count);
  if (rows == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Kernel& kernel = kernels[static_cast<size_t>(i)];
    PyObject* required = feature_names(kernel.required);
    PyObject* row =
        required == nullptr
            ? nullptr
            : Py_BuildValue("(sssN)", kernel.name, dtype_name(kernel.dtype), kernel.isa, required);
    if (row == nullptr || PyTuple_SetItem(rows, i, row) != 0) {
      Py_DECREF(rows);
      return nullptr;
    }
  }
  return rows;
}

// A function that takes arguments by position, as a method table wants it.
template <class Function>
PyCFunction erased(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace torchyard

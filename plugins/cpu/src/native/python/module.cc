// The Python module: integers in, no tensor type, no torch. Stable ABI of Python 3.11.
//
// The signatures are in torchyard_cpu/_native.pyi. Nothing here throws: every failure is a Python
// exception set by the function that found it.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>
#include <initializer_list>

#include "attention/attention.h"
#include "attention/dispatch.h"
#include "attention/mask.h"

namespace {

using torchyard::DType;
using torchyard::ForwardArgs;
using torchyard::ForwardKernel;
using torchyard::MaskBlocks;

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "";
}

// Reads a tuple of exactly `count` integers. `what` names the argument in the error.
bool read_integers(PyObject* tuple, const char* what, Py_ssize_t count, int64_t* out) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
    PyErr_Format(PyExc_TypeError, "%s: expected a tuple of %zd integers", what, count);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (out[i] == -1 && PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

template <class T>
T* pointer(int64_t address) {
  return reinterpret_cast<T*>(static_cast<intptr_t>(address));
}

bool read_dims(PyObject* tuple, ForwardArgs* args) {
  int64_t d[7];
  if (!read_integers(tuple, "dims", 7, d)) return false;
  for (const int64_t size : d) {
    if (size < 0) {
      PyErr_SetString(PyExc_ValueError, "dims: expected sizes of at least 0");
      return false;
    }
  }
  args->batches = d[0];
  args->query_heads = d[1];
  args->key_heads = d[2];
  args->query_rows = d[3];
  args->keys = d[4];
  args->head_dim = d[5];
  args->value_dim = d[6];
  if (d[1] != 0 && (d[2] == 0 || d[1] % d[2] != 0)) {
    PyErr_Format(PyExc_ValueError,
                 "dims: expected query heads to be a multiple of key heads, got %lld and %lld",
                 static_cast<long long>(d[1]), static_cast<long long>(d[2]));
    return false;
  }
  if (d[5] < 1 || d[5] > torchyard::kMaxHeadDim || d[6] < 1 || d[6] > torchyard::kMaxHeadDim) {
    PyErr_Format(PyExc_ValueError, "dims: expected head sizes of 1 to %d, got %lld and %lld",
                 torchyard::kMaxHeadDim, static_cast<long long>(d[5]),
                 static_cast<long long>(d[6]));
    return false;
  }
  return true;
}

bool read_tensor(PyObject* tuple, const char* what, torchyard::Strided* out) {
  int64_t t[4];
  if (!read_integers(tuple, what, 4, t)) return false;
  *out = {pointer<const void>(t[0]), t[1], t[2], t[3]};
  return true;
}

bool read_mask(PyObject* tuple, const ForwardArgs& args, MaskBlocks* out) {
  int64_t m[12];
  if (!read_integers(tuple, "mask", 12, m)) return false;
  if (m[0] < 1 || m[1] < 1) {
    PyErr_Format(PyExc_ValueError, "mask: expected block sizes of at least 1, got %lld x %lld",
                 static_cast<long long>(m[0]), static_cast<long long>(m[1]));
    return false;
  }
  if ((m[2] != 1 && m[2] != args.batches) || (m[3] != 1 && m[3] != args.query_heads)) {
    PyErr_Format(PyExc_ValueError,
                 "mask: expected 1 or %lld batches and 1 or %lld heads, got %lld and %lld",
                 static_cast<long long>(args.batches), static_cast<long long>(args.query_heads),
                 static_cast<long long>(m[2]), static_cast<long long>(m[3]));
    return false;
  }
  out->block_rows = m[0];
  out->block_keys = m[1];
  out->row_blocks = torchyard::ceil_div(args.query_rows, m[0]);
  out->batches = m[2];
  out->heads = m[3];
  out->partial_count = pointer<const int32_t>(m[4]);
  out->partial_index = pointer<const int32_t>(m[5]);
  out->full_count = pointer<const int32_t>(m[6]);
  out->full_index = pointer<const int32_t>(m[7]);
  out->bits = pointer<const uint8_t>(m[8]);
  out->first_partial = pointer<const int64_t>(m[9]);
  out->partial_width = m[10];
  out->full_width = m[11];
  return true;
}

const ForwardKernel* read_kernel(PyObject* name) {
  const char* text = PyUnicode_AsUTF8AndSize(name, nullptr);
  if (text == nullptr) return nullptr;
  const ForwardKernel* kernel = torchyard::find_forward(text);
  if (kernel == nullptr) {
    PyErr_Format(PyExc_ValueError, "kernel: expected a name from kernels(), got '%s'", text);
    return nullptr;
  }
  static const torchyard::FeatureSet features = torchyard::detect_features();
  if ((kernel->required & ~features) != 0) {
    PyErr_Format(PyExc_RuntimeError, "kernel: '%s' needs instructions that this processor lacks",
                 text);
    return nullptr;
  }
  return kernel;
}

PyObject* attention_forward(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 11) {
    PyErr_Format(PyExc_TypeError, "attention_forward: expected 11 arguments, got %zd", argc);
    return nullptr;
  }
  const ForwardKernel* kernel = read_kernel(argv[0]);
  if (kernel == nullptr) return nullptr;
  ForwardArgs args;
  torchyard::Strided out;
  if (!read_dims(argv[1], &args) || !read_tensor(argv[2], "query", &args.query) ||
      !read_tensor(argv[3], "key", &args.key) || !read_tensor(argv[4], "value", &args.value) ||
      !read_tensor(argv[5], "out", &out)) {
    return nullptr;
  }
  args.out = {const_cast<void*>(out.data), out.batch, out.head, out.row};
  const long long lse = PyLong_AsLongLong(argv[6]);
  if (lse == -1 && PyErr_Occurred() != nullptr) return nullptr;
  args.lse = pointer<float>(lse);
  args.scale = PyFloat_AsDouble(argv[7]);
  if (args.scale == -1.0 && PyErr_Occurred() != nullptr) return nullptr;
  MaskBlocks mask;
  args.mask = nullptr;
  if (argv[8] != Py_None) {
    if (!read_mask(argv[8], args, &mask)) return nullptr;
    args.mask = &mask;
  }
  const long threads = PyLong_AsLong(argv[9]);
  if (threads == -1 && PyErr_Occurred() != nullptr) return nullptr;
  constexpr long kMostThreads = 1024;
  if (threads < 1 || threads > kMostThreads) {
    PyErr_Format(PyExc_ValueError, "threads: expected 1 to %ld, got %ld", kMostThreads, threads);
    return nullptr;
  }
  const int poison = PyObject_IsTrue(argv[10]);
  if (poison < 0) return nullptr;

  torchyard::Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = torchyard::attention_forward(args, *kernel, static_cast<int>(threads), poison != 0);
  Py_END_ALLOW_THREADS;
  if (status == torchyard::Status::kOutOfMemory) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

PyObject* select_kernel(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 3) {
    PyErr_Format(PyExc_TypeError, "select_kernel: expected 3 arguments, got %zd", argc);
    return nullptr;
  }
  const char* dtype = PyUnicode_AsUTF8AndSize(argv[0], nullptr);
  if (dtype == nullptr) return nullptr;
  torchyard::FeatureSet features = 0;
  PyObject* iterator = PyObject_GetIter(argv[1]);
  if (iterator == nullptr) return nullptr;
  while (PyObject* item = PyIter_Next(iterator)) {
    const char* name = PyUnicode_AsUTF8AndSize(item, nullptr);
    if (name != nullptr) features |= torchyard::feature_from_name(name);
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
  for (const DType known : {DType::kFloat32, DType::kBFloat16}) {
    if (std::strcmp(dtype_name(known), dtype) != 0) continue;
    const ForwardKernel* kernel = torchyard::select_forward(known, features, isa);
    if (kernel == nullptr) Py_RETURN_NONE;
    return PyUnicode_FromString(kernel->name);
  }
  Py_RETURN_NONE;
}

// A tuple of the names of `features`.
PyObject* feature_names(torchyard::FeatureSet features) {
  Py_ssize_t count = 0;
  for (size_t i = 0; i < torchyard::kFeatureCount; ++i) {
    count += (features & torchyard::kFeatureNames[i].feature) != 0;
  }
  PyObject* names = PyTuple_New(count);
  if (names == nullptr) return nullptr;
  Py_ssize_t at = 0;
  for (size_t i = 0; i < torchyard::kFeatureCount; ++i) {
    if ((features & torchyard::kFeatureNames[i].feature) == 0) continue;
    PyObject* name = PyUnicode_FromString(torchyard::kFeatureNames[i].name);
    if (name == nullptr || PyTuple_SetItem(names, at++, name) != 0) {
      Py_DECREF(names);
      return nullptr;
    }
  }
  return names;
}

PyObject* cpu_features(PyObject*, PyObject*) { return feature_names(torchyard::detect_features()); }

PyObject* kernels(PyObject*, PyObject*) {
  const Py_ssize_t count = static_cast<Py_ssize_t>(torchyard::kForwardKernelCount);
  PyObject* rows = PyTuple_New(count);
  if (rows == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const ForwardKernel& kernel = *torchyard::kForwardKernels[i];
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

template <class Function>
PyCFunction erased(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"attention_forward", erased(attention_forward), METH_FASTCALL,
     "Run an attention forward kernel on raw addresses."},
    {"select_kernel", erased(select_kernel), METH_FASTCALL,
     "Return the name of the attention forward kernel for a dtype and a feature set."},
    {"cpu_features", cpu_features, METH_NOARGS,
     "Return the names of the usable instruction set extensions."},
    {"kernels", kernels, METH_NOARGS,
     "Return (name, dtype, isa, required features) of each attention forward kernel."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_native",
                          "Native CPU kernels.",
                          0,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  if (PyModule_AddIntConstant(module, "MAX_HEAD_DIM", torchyard::kMaxHeadDim) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}

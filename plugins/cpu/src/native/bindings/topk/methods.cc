#include "bindings/topk/methods.h"

#include <cstring>

#include "base/isa/cpu_features.h"
#include "topk/topk.h"

namespace torchyard {

namespace {

constexpr const char* kDTypeNames[kTopKDTypes] = {
    "float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64",
};
constexpr int64_t kMaxRows = int64_t{1} << 40;

// What `topk` takes after the kernel's name, in the order of _native.pyi.
enum Place {
  kX,
  kRows,
  kLength,
  kRowStride,
  kMask,
  kMaskStride,
  kOffsets,
  kK,
  kLargest,
  kOrder,
  kValues,
  kIndices,
  kThreads,
  kPlaces
};

bool check(bool holds, const char* text) {
  if (!holds) PyErr_SetString(PyExc_ValueError, text);
  return holds;
}

PyObject* topk_call(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != kPlaces + 1) {
    PyErr_Format(PyExc_TypeError, "topk: expected %d arguments, got %zd", kPlaces + 1, argc);
    return nullptr;
  }
  const char* name = PyUnicode_AsUTF8AndSize(argv[0], nullptr);
  if (name == nullptr) return nullptr;
  const TopKKernel* kernel = kTopKKernels.find(name);
  if (kernel == nullptr) {
    PyErr_Format(PyExc_ValueError, "kernel: expected a name that topk_kernels() lists, got %s",
                 name);
    return nullptr;
  }
  int64_t given[kPlaces];
  for (int i = 0; i < kPlaces; ++i) {
    given[i] = PyLong_AsLongLong(argv[i + 1]);
    if (given[i] == -1 && PyErr_Occurred() != nullptr) return nullptr;
  }
  if (!check(given[kRows] >= 0 && given[kRows] < kMaxRows && given[kLength] >= 0,
             "rows, length: expected sizes of at least 0") ||
      !check(given[kLength] <= kMaxTopKLength, "length: expected less than 2 ** 31 - 65536") ||
      !check(given[kK] >= 1, "k: expected at least 1") ||
      !check(given[kOrder] >= 0 && given[kOrder] <= 2, "order: expected 0, 1 or 2") ||
      !check(given[kThreads] >= 1 && given[kThreads] <= 1 << 16, "threads: expected at least 1")) {
    return nullptr;
  }
  const auto pointer = [&](Place place) {
    return reinterpret_cast<void*>(static_cast<intptr_t>(given[place]));
  };
  const TopKArgs args = {pointer(kX),
                         given[kRows],
                         given[kLength],
                         given[kRowStride],
                         static_cast<const uint8_t*>(pointer(kMask)),
                         given[kMaskStride],
                         static_cast<const int64_t*>(pointer(kOffsets)),
                         given[kK],
                         given[kLargest] != 0,
                         static_cast<TopKOrder>(given[kOrder]),
                         pointer(kValues),
                         static_cast<int64_t*>(pointer(kIndices))};
  if (!check(offsets_fit(args), "offsets: expected numbers that rise within x")) return nullptr;
  bool done;
  Py_BEGIN_ALLOW_THREADS;
  done = topk(args, *kernel, static_cast<int>(given[kThreads]));
  Py_END_ALLOW_THREADS;
  if (!done) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

PyObject* select_topk_kernel(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 2) {
    PyErr_Format(PyExc_TypeError, "select_topk: expected 2 arguments, got %zd", argc);
    return nullptr;
  }
  const char* dtype = PyUnicode_AsUTF8AndSize(argv[0], nullptr);
  PyObject* iterator = dtype == nullptr ? nullptr : PyObject_GetIter(argv[1]);
  if (iterator == nullptr) return nullptr;
  FeatureSet features = 0;
  while (PyObject* item = PyIter_Next(iterator)) {
    const char* name = PyUnicode_AsUTF8AndSize(item, nullptr);
    if (name != nullptr) features |= feature_from_name(name);
    Py_DECREF(item);
    if (name == nullptr) break;
  }
  Py_DECREF(iterator);
  if (PyErr_Occurred() != nullptr) return nullptr;
  for (int i = 0; i < kTopKDTypes; ++i) {
    if (std::strcmp(kDTypeNames[i], dtype) != 0) continue;
    return PyUnicode_FromString(kTopKKernels.select(static_cast<TopKDType>(i), features)->name);
  }
  Py_RETURN_NONE;
}

PyObject* topk_kernels(PyObject*, PyObject*) {
  const Py_ssize_t count = static_cast<Py_ssize_t>(kTopKKernels.size());
  PyObject* rows = PyTuple_New(count);
  for (Py_ssize_t i = 0; rows != nullptr && i < count; ++i) {
    const TopKKernel& kernel = kTopKKernels[static_cast<size_t>(i)];
    PyObject* row = Py_BuildValue("(sss)", kernel.name, kDTypeNames[static_cast<int>(kernel.dtype)],
                                  kernel.isa);
    if (row == nullptr || PyTuple_SetItem(rows, i, row) != 0) Py_CLEAR(rows);
  }
  return rows;
}

PyMethodDef functions[] = {
    {"topk", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(topk_call)), METH_FASTCALL,
     "Run a selection on raw addresses."},
    {"select_topk", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(select_topk_kernel)),
     METH_FASTCALL, "Return the name of the selection for a dtype and a feature set."},
    {"topk_kernels", topk_kernels, METH_NOARGS, "Return (name, dtype, isa) of each selection."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_topk(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace torchyard

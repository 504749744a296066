// topk's calls that are served without Python's help: see torchyard_cpu/_native.pyi, DirectTopK.
#include <cstring>
#include <new>

#include "python/admitted.h"
#include "python/arguments.h"
#include "python/direct.h"
#include "python/direct_type.h"
#include "python/torch_tensors.h"
#include "topk/topk.h"

namespace torchyard {

namespace {

// What torchyard_kernels.contracts.topk.TopKRequest says of a call that may be served here.
struct Asked {
  int64_t dtype;
  int64_t rows, length, k;
  int64_t largest;
  int64_t sorted;
};

struct DirectTopK {
  PyObject_HEAD;
  Torch torch;
  const TopKKernel* kernels[kTopKDTypes];
  Admitted<Asked> admitted;
};

// Reads True or False, and nothing that merely counts as one of them.
bool read_truth(PyObject* object, bool* out) {
  *out = object == Py_True;
  return *out || object == Py_False;
}

bool read_small(PyObject* object, int64_t* out) {
  if (!PyLong_Check(object) || PyBool_Check(object)) return false;
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

// Whether all but the last dimension are one, with `stride` between its rows.
bool one_stride(const SeenTensor& x, int64_t* rows, int64_t* stride) {
  *rows = 1;
  *stride = 0;
  for (int64_t d = x.dim - 2; d >= 0; --d) {
    if (x.sizes[d] == 1) continue;
    if (*rows == 1) {
      *stride = x.strides[d];
    } else if (x.strides[d] != *rows * *stride) {
      return false;
    }
    *rows *= x.sizes[d];
  }
  return true;
}

// serve(x, k, dim, largest, sorted)
PyObject* serve(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 5) {
    PyErr_Format(PyExc_TypeError, "serve: expected 5 arguments, got %zd", argc);
    return nullptr;
  }
  const DirectTopK& direct = *reinterpret_cast<DirectTopK*>(self);
  const Torch& torch = direct.torch;
  SeenTensor x;
  int64_t k, dim, rows, stride;
  bool largest, sorted;
  if (!read_small(argv[1], &k) || !read_small(argv[2], &dim) || !read_truth(argv[3], &largest) ||
      !read_truth(argv[4], &sorted) || !torch.see(argv[0], &x) || x.dim < 1) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    Py_RETURN_NONE;
  }
  const int64_t length = x.sizes[x.dim - 1];
  const int dtype = torch.dtype_index(x.dtype);
  if ((dim != -1 && dim != x.dim - 1) || k < 1 || k > length || length > kMaxTopKLength ||
      dtype < 0 || dtype >= kTopKDTypes || (x.strides[x.dim - 1] != 1 && length != 1) ||
      !one_stride(x, &rows, &stride) ||
      !direct.admitted.holds(
          {dtype, rounded(rows), rounded(length), rounded(k), largest, sorted})) {
    Py_RETURN_NONE;
  }
  int64_t sizes[kMaxTensorDim];
  for (int64_t d = 0; d < x.dim; ++d) sizes[d] = x.sizes[d];
  sizes[x.dim - 1] = k;
  void *values_data, *indices_data;
  void* values = torch.make(x.dim, sizes, x.dtype, &values_data);
  if (values == nullptr) return nullptr;
  void* indices = torch.make(x.dim, sizes, torch.dtype(TensorDType::kInt64), &indices_data);
  if (indices == nullptr) {
    torch.drop(values);
    return nullptr;
  }
  const TopKArgs args = {.x = x.data,
                         .rows = rows,
                         .length = length,
                         .row_stride = stride,
                         .mask = nullptr,
                         .mask_row_stride = 0,
                         .offsets = nullptr,
                         .k = k,
                         .largest = largest,
                         .order = sorted ? TopKOrder::kSorted : TopKOrder::kIndex,
                         .values = values_data,
                         .indices = static_cast<int64_t*>(indices_data)};
  bool done;
  Py_BEGIN_ALLOW_THREADS;
  done = topk(args, *direct.kernels[dtype], torch.threads());
  Py_END_ALLOW_THREADS;
  if (!done) {
    torch.drop(values);
    torch.drop(indices);
    return PyErr_NoMemory();
  }
  return torch.give_pair(values, indices);
}

PyObject* admit(PyObject* self, PyObject* tuple) {
  return admit_request<DirectTopK, Asked>(self, tuple, kTopKDTypes);
}

PyMethodDef methods[] = {
    {"serve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(serve)), METH_FASTCALL,
     "Compute a call whose request was admitted; None for any other."},
    {"admit", admit, METH_O, "Serve calls that make this request from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(end_direct<DirectTopK>)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"torchyard_cpu._native.DirectTopK", sizeof(DirectTopK), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyTypeObject* type;

// direct_topk(kernels, probe, handle, tensor type, parameter type, wrap, takes)
PyObject* direct_topk(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 7 || !PyTuple_Check(argv[0]) || PyTuple_Size(argv[0]) != kTopKDTypes) {
    PyErr_SetString(PyExc_TypeError, "direct_topk: expected 7 arguments, 9 kernels first");
    return nullptr;
  }
  const TopKKernel* kernels[kTopKDTypes];
  for (int i = 0; i < kTopKDTypes; ++i) {
    const char* name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(argv[0], i), nullptr);
    if (name == nullptr) return nullptr;
    kernels[i] = find_topk(name);
    if (kernels[i] == nullptr) {
      PyErr_Format(PyExc_ValueError, "kernels: expected names that topk_kernels() lists, got %s",
                   name);
      return nullptr;
    }
  }
  DirectTopK* direct = PyObject_New(DirectTopK, type);
  if (direct == nullptr) return nullptr;
  new (&direct->torch) Torch();
  new (&direct->admitted) Admitted<Asked>();
  std::memcpy(direct->kernels, kernels, sizeof(kernels));
  if (direct->torch.connect(argv[1], argv[2], argv[3], argv[4], argv[5], argv[6] == Py_True)) {
    return reinterpret_cast<PyObject*>(direct);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(direct));
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"direct_topk", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(direct_topk)),
     METH_FASTCALL, "Return a DirectTopK, or None where torch lacks what it needs."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_topk_direct(PyObject* module) {
  return add_direct_type(module, &spec, "DirectTopK", functions, &type);
}

}  // namespace torchyard

// topk's calls that are served without Python's help: see torchyard_cpu/_native.pyi, DirectTopK.
#include <cstring>
#include <new>

#include "bindings/admitted.h"
#include "bindings/arguments.h"
#include "bindings/direct.h"
#include "bindings/direct_type.h"
#include "bindings/torch_tensors.h"
#include "topk/topk.h"

namespace torchyard {

namespace {

// What torchyard_kernels.topk.contract.TopKRequest says of a call that may be served here.
struct Asked {
  int64_t dtype;
  int64_t rows, length, k;
  int64_t largest;
  int64_t order;
  int64_t masked, segmented;
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

// A call's tensors and what it asks of them.
struct Given {
  SeenTensor x;
  TopKArgs args;
  int dtype;
  int64_t dim;
};

// Whether a mask is one of bools, for every element of x or for every row the same.
bool read_mask(const Torch& torch, PyObject* object, const SeenTensor& x, TopKArgs* args) {
  SeenTensor mask;
  if (!torch.see(object, &mask) || mask.dtype != torch.dtype(TensorDType::kBool)) return false;
  const bool same = mask.dim == x.dim;
  if (!same && mask.dim != 1) return false;
  for (int64_t d = 0; d < mask.dim; ++d) {
    if (mask.sizes[d] != x.sizes[x.dim - mask.dim + d]) return false;
  }
  int64_t rows;
  args->mask = static_cast<const uint8_t*>(mask.data);
  return (mask.strides[mask.dim - 1] == 1 || args->length == 1) &&
         one_stride(mask, &rows, &args->mask_row_stride);
}

// Whether offsets rise within x.
bool read_offsets(const Torch& torch, PyObject* object, const SeenTensor& x, TopKArgs* args) {
  SeenTensor offsets;
  if (x.dim != 1 || !torch.see_integers(object, 1, &offsets) ||
      offsets.dtype != torch.dtype(TensorDType::kInt64) || offsets.sizes[0] < 2 ||
      offsets.strides[0] != 1) {
    return false;
  }
  args->offsets = static_cast<const int64_t*>(offsets.data);
  args->rows = offsets.sizes[0] - 1;
  return offsets_fit(*args);
}

// By the number of arguments: see the contract.
constexpr Py_ssize_t kLast = 3, kRows = 5, kMasked = 6, kSegmented = 7;

// False where a call is not one that a kernel may be given as it is, with an exception set only
// where Python's own code failed.
bool read_call(const Torch& torch, PyObject* const* argv, Py_ssize_t argc, Given* out) {
  TopKArgs& args = out->args;
  SeenTensor& x = out->x;
  args = {};
  bool sorted = false;
  if (!read_small(argv[1], &args.k) || !read_small(argv[2], &out->dim) ||
      !(argc == kLast || (read_truth(argv[3], &args.largest) && read_truth(argv[4], &sorted))) ||
      !torch.see(argv[0], &x) || x.dim < 1) {
    return false;
  }
  args.order = argc == kLast ? TopKOrder::kLast : sorted ? TopKOrder::kSorted : TopKOrder::kIndex;
  args.x = x.data;
  args.length = x.sizes[x.dim - 1];
  out->dtype = torch.dtype_index(x.dtype);
  return (out->dim == -1 || out->dim == x.dim - 1) && args.k >= 1 &&
         (args.k <= args.length || argc == kSegmented) && args.length <= kMaxTopKLength &&
         out->dtype >= 0 && out->dtype < kTopKDTypes &&
         (x.strides[x.dim - 1] == 1 || args.length == 1) &&
         one_stride(x, &args.rows, &args.row_stride) &&
         (argc != kMasked || read_mask(torch, argv[5], x, &args)) &&
         (argc != kSegmented || (argv[5] == Py_None && read_offsets(torch, argv[6], x, &args)));
}

// serve(x, k, dim, largest, sorted, mask, offsets)
PyObject* serve(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != kLast && argc != kRows && argc != kMasked && argc != kSegmented) {
    PyErr_Format(PyExc_TypeError, "serve: expected 3, 5, 6 or 7 arguments, got %zd", argc);
    return nullptr;
  }
  const DirectTopK& direct = *reinterpret_cast<DirectTopK*>(self);
  const Torch& torch = direct.torch;
  Given given;
  TopKArgs& args = given.args;
  if (!read_call(torch, argv, argc, &given) ||
      !direct.admitted.holds({given.dtype, rounded(args.rows), rounded(args.length),
                              rounded(args.k), args.largest, static_cast<int64_t>(args.order),
                              argc == kMasked, argc == kSegmented})) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    Py_RETURN_NONE;
  }
  const SeenTensor& x = given.x;
  int64_t sizes[kMaxTensorDim + 1];
  for (int64_t d = 0; d < x.dim; ++d) sizes[d] = x.sizes[d];
  // The k-th alone has no dimension, and segments are rows.
  int64_t dim = argc == kLast ? x.dim - 1 : x.dim;
  if (argc == kSegmented) sizes[dim++ - 1] = args.rows;
  if (argc != kLast) sizes[dim - 1] = args.k;
  void* indices_data;
  void* values = torch.make(dim, sizes, x.dtype, &args.values);
  if (values == nullptr) Py_RETURN_NONE;
  void* indices = torch.make(dim, sizes, torch.dtype(TensorDType::kInt64), &indices_data);
  if (indices == nullptr) {
    torch.drop(values);
    Py_RETURN_NONE;
  }
  args.indices = static_cast<int64_t*>(indices_data);
  bool done;
  Py_BEGIN_ALLOW_THREADS;
  done = topk(args, *direct.kernels[given.dtype], torch.threads());
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

// The fast path of topk, see torchyard_cpu/_native.pyi: topk_fast_path.
#include "bindings/fast_path.h"

#include <cstring>

#include "bindings/arguments.h"
#include "bindings/request_cache.h"
#include "bindings/tensor_reader.h"
#include "topk/topk.h"

namespace torchyard {

namespace {

// torchyard_kernels.topk.contract.TopKRequest in words of eight bytes.
struct RequestKey {
  int64_t dtype;
  int64_t rows, length, k;
  int64_t largest;
  int64_t order;
  int64_t masked, segmented;
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
bool one_stride(const TensorView& x, int64_t* rows, int64_t* stride) {
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

// A call's tensor and its arguments.
struct Call {
  TensorView x;
  TopKArgs args;
  int dtype;
  int64_t dim;
};

// Whether a mask is one of bools, for every element of x or for every row the same.
bool read_mask(const TensorReader& reader, PyObject* object, const TensorView& x, TopKArgs* args) {
  TensorView mask;
  if (!reader.read(object, &mask) || mask.dtype != TensorDType::kBool) return false;
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
bool read_offsets(const TensorReader& reader, PyObject* object, const TensorView& x,
                  TopKArgs* args) {
  TensorView offsets;
  if (x.dim != 1 || !reader.read_integers(object, 1, &offsets) ||
      offsets.dtype != TensorDType::kInt64 || offsets.sizes[0] < 2 || offsets.strides[0] != 1) {
    return false;
  }
  args->offsets = static_cast<const int64_t*>(offsets.data);
  args->rows = offsets.sizes[0] - 1;
  return offsets_fit(*args);
}

// By the number of arguments: see the contract.
constexpr Py_ssize_t kLast = 3, kRows = 5, kMasked = 6, kSegmented = 7;

// False where a kernel cannot be given the call as it is, with an exception set only where Python
// code failed.
bool read_call(const TensorReader& reader, PyObject* const* argv, Py_ssize_t argc, Call* out) {
  TopKArgs& args = out->args;
  TensorView& x = out->x;
  args = {};
  bool sorted = false;
  if (!read_small(argv[1], &args.k) || !read_small(argv[2], &out->dim) ||
      !(argc == kLast || (read_truth(argv[3], &args.largest) && read_truth(argv[4], &sorted))) ||
      !reader.read(argv[0], &x) || x.dim < 1) {
    return false;
  }
  args.order = argc == kLast ? TopKOrder::kLast : sorted ? TopKOrder::kSorted : TopKOrder::kIndex;
  args.x = x.data;
  args.length = x.sizes[x.dim - 1];
  out->dtype = static_cast<int>(x.dtype);
  return (out->dim == -1 || out->dim == x.dim - 1) && args.k >= 1 &&
         (args.k <= args.length || argc == kSegmented) && args.length <= kMaxTopKLength &&
         out->dtype < kTopKDTypes && (x.strides[x.dim - 1] == 1 || args.length == 1) &&
         one_stride(x, &args.rows, &args.row_stride) &&
         (argc != kMasked || read_mask(reader, argv[5], x, &args)) &&
         (argc != kSegmented || (argv[5] == Py_None && read_offsets(reader, argv[6], x, &args)));
}

struct Path {
  const TopKKernel* kernels[kTopKDTypes];
  RequestCache<RequestKey> requests;

  // try_call(x, k, dim, largest, sorted, mask, offsets)
  PyObject* try_call(PyObject* const* argv, Py_ssize_t argc) {
    if (argc != kLast && argc != kRows && argc != kMasked && argc != kSegmented) {
      PyErr_Format(PyExc_TypeError, "try_call: expected 3, 5, 6 or 7 arguments, got %zd", argc);
      return nullptr;
    }
    Call call;
    const TopKArgs& args = call.args;
    if (!read_call(tensor_reader(), argv, argc, &call) ||
        !requests.contains({call.dtype, rounded(args.rows), rounded(args.length), rounded(args.k),
                            args.largest, static_cast<int64_t>(args.order), argc == kMasked,
                            argc == kSegmented})) {
      return not_computed();
    }
    return run(argc, &call);
  }

  PyObject* enable(PyObject* const* argv, Py_ssize_t argc) {
    return enable_request(&requests, argv, argc, kTopKDTypes);
  }

  void clear() { requests.clear(); }
  void end() {}

  // Makes the outputs and runs the kernel.
  PyObject* run(Py_ssize_t argc, Call* call) const {
    const TensorReader& reader = tensor_reader();
    TopKArgs& args = call->args;
    const TensorView& x = call->x;
    int64_t sizes[kMaxTensorDim + 1];
    for (int64_t d = 0; d < x.dim; ++d) sizes[d] = x.sizes[d];
    // The k-th alone has no dimension, and segments are rows.
    int64_t dim = argc == kLast ? x.dim - 1 : x.dim;
    if (argc == kSegmented) sizes[dim++ - 1] = args.rows;
    if (argc != kLast) sizes[dim - 1] = args.k;
    NewTensor values, indices;
    if (!reader.make(dim, sizes, x.dtype, &values)) return without_outputs();
    if (!reader.make(dim, sizes, TensorDType::kInt64, &indices)) {
      Py_DECREF(values.tensor);
      return without_outputs();
    }
    args.values = values.data;
    args.indices = static_cast<int64_t*>(indices.data);
    const int threads = reader.threads();
    bool done;
    Py_BEGIN_ALLOW_THREADS;
    done = topk(args, *kernels[call->dtype], threads);
    Py_END_ALLOW_THREADS;
    PyObject* pair = done ? PyTuple_Pack(2, values.tensor, indices.tensor) : PyErr_NoMemory();
    Py_DECREF(values.tensor);
    Py_DECREF(indices.tensor);
    return pair;
  }
};

// topk_fast_path(kernels)
PyObject* topk_fast_path(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 1 || !PyTuple_Check(argv[0]) || PyTuple_Size(argv[0]) != kTopKDTypes) {
    PyErr_SetString(PyExc_TypeError, "topk_fast_path: expected a tuple of 9 kernels");
    return nullptr;
  }
  Path* path = allocate_path<Path>();
  for (int i = 0; path != nullptr && i < kTopKDTypes; ++i) {
    path->kernels[i] = read_kernel(PyTuple_GetItem(argv[0], i), kTopKKernels, "topk_kernels");
    if (path->kernels[i] == nullptr) return drop_path(path);
  }
  return path == nullptr ? nullptr : make_fast_path(path);
}

PyMethodDef functions[] = {path_maker("topk_fast_path", topk_fast_path),
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_topk_fast_path(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace torchyard

// Reads the tensors of linear's calls.
#pragma once

#include "bindings/arguments.h"
#include "bindings/fast_path.h"
#include "bindings/request_cache.h"
#include "bindings/tensor_reader.h"
#include "linear/linear.h"

namespace torchyard {

constexpr int kLinearDTypes = 3;

// torchyard_kernels.linear.contract.LinearRequest in words of eight bytes.
struct LinearKey {
  int64_t dtype;  // of DType
  int64_t rows, outputs, depth;
  int64_t packed;
  int64_t bias;
  int64_t batch;
};

// What a call gives in place of a packed weight's shape where the weight is plain, [N, K]; or is
// what matmul takes second, [K, N], or [B, K, N] for x [B, M, K].
constexpr int64_t kPlainWeight = -1;
constexpr int64_t kSecondFactor = -2;

// Gives the rows of x in two strides at most; false where that cannot be done.
inline bool read_levels(const TensorView& x, LinearRows* out, int64_t* rows) {
  int64_t size[2] = {1, 1};
  int64_t stride[2] = {0, 0};
  int levels = 0;
  *rows = 1;
  for (int64_t d = 0; d + 1 < x.dim; ++d) {
    *rows *= x.sizes[d];
    if (x.sizes[d] == 1) continue;
    if (levels > 0 && stride[levels - 1] == x.sizes[d] * x.strides[d]) {
      size[levels - 1] *= x.sizes[d];
      stride[levels - 1] = x.strides[d];
      continue;
    }
    if (levels == 2) return false;
    size[levels] = x.sizes[d];
    stride[levels++] = x.strides[d];
  }
  const int last = levels == 2 ? 1 : 0;
  *out = {x.data, 0, levels == 2 ? stride[0] : 0, size[last] < 1 ? 1 : size[last], stride[last]};
  return true;
}

// Gives the rows of x [B, M, K] for a weight each; false where there is another number of weights.
inline bool read_batches(const TensorView& x, const TensorView& weight, LinearArgs* args) {
  if (x.dim != 3 || x.sizes[0] != weight.sizes[0] || x.sizes[0] < 1) return false;
  args->batches = x.sizes[0];
  args->rows = x.sizes[1];
  args->x = {x.data, x.strides[0], 0, x.sizes[1] < 1 ? 1 : x.sizes[1], x.strides[1]};
  return true;
}

// `outputs`: of a packed weight; or which of the others it is.
inline bool read_weight(const TensorView& weight, int64_t outputs, int pair, LinearArgs* args) {
  if (outputs < 0) {
    const bool batched = weight.dim == 3;
    if (weight.dim != 2 && !(batched && outputs == kSecondFactor)) return false;
    const int64_t last = weight.dim - 1;
    const int64_t row = outputs == kSecondFactor ? last : last - 1;
    const int64_t column = outputs == kSecondFactor ? last - 1 : last;
    args->outputs = weight.sizes[row];
    args->depth = weight.sizes[column];
    args->weight = {weight.data, false, batched ? weight.strides[0] : 0, weight.strides[row],
                    weight.strides[column]};
    return weight.strides[row] == 1 || weight.strides[column] == 1;
  }
  if (weight.dim != 4 || weight.sizes[0] != (outputs + kPanelColumns - 1) / kPanelColumns ||
      weight.sizes[1] != words_of(args->depth, pair) || weight.sizes[2] != kPanelColumns ||
      weight.sizes[3] != pair || weight.strides[3] != 1 || weight.strides[2] != pair ||
      weight.strides[1] != pair * kPanelColumns ||
      weight.strides[0] != weight.sizes[1] * pair * kPanelColumns) {
    return false;
  }
  args->outputs = outputs;
  args->weight = {weight.data, true, 0, 0, 0};
  return true;
}

// A call without its functions.
struct LinearView {
  TensorView x;
  int dtype;  // of DType
  LinearArgs args;
  LinearKey key;
};

// Reads the shape (N, K) of a packed weight, or which of the others a weight is, with any depth;
// false where it is neither, perhaps with an exception set.
inline bool read_form(PyObject* object, int64_t depth, int64_t* outputs) {
  if (!PyTuple_Check(object)) {
    *outputs = PyLong_AsLongLong(object);
    return *outputs == kPlainWeight ? PyErr_Occurred() == nullptr : *outputs == kSecondFactor;
  }
  if (PyTuple_Size(object) != 2) return false;
  *outputs = PyLong_AsLongLong(PyTuple_GetItem(object, 0));
  // Panels do not show whether their last pair is whole.
  return PyLong_AsLongLong(PyTuple_GetItem(object, 1)) == depth && *outputs >= 1;
}

// Reads the product of a call, without functions around it; false where a kernel cannot be given it
// as it is, with an exception set only where Python code failed.
inline bool read_linear(PyObject* x_object, PyObject* weight_object, PyObject* form,
                        PyObject* bias_object, LinearView* out) {
  const TensorReader& reader = tensor_reader();
  const bool biased = bias_object != Py_None;
  TensorView weight, bias;
  TensorView& x = out->x;
  LinearArgs& args = out->args;
  if (!reader.read(x_object, &x) || !reader.read(weight_object, &weight) ||
      (biased && !reader.read(bias_object, 1, &bias))) {
    return false;
  }
  out->dtype = kernel_dtype(x.dtype);
  if (out->dtype < 0 || x.dim < 1 || weight.dtype != x.dtype) return false;
  args.batches = 1;
  args.depth = x.sizes[x.dim - 1];
  int64_t outputs;
  if (!read_form(form, args.depth, &outputs)) return false;
  const int pair = static_cast<DType>(out->dtype) == DType::kBFloat16 ? 2 : 1;
  const int64_t depth = args.depth;
  if (depth < 1 || x.strides[x.dim - 1] != 1 ||
      !(outputs == kSecondFactor && weight.dim == 3 ? read_batches(x, weight, &args)
                                                    : read_levels(x, &args.x, &args.rows)) ||
      args.rows < 1 || !read_weight(weight, outputs, pair, &args) || args.depth != depth ||
      args.outputs < 1 ||
      (biased &&
       (bias.dtype != x.dtype || bias.sizes[0] != args.outputs || bias.strides[0] != 1))) {
    return false;
  }
  args.bias = biased ? bias.data : nullptr;
  args.prologue = nullptr;
  args.epilogue = nullptr;
  out->key = {out->dtype, rounded(args.rows), args.outputs, depth, outputs >= 0,
              biased,     args.batches};
  return true;
}

// Makes the output, [..., columns], and runs a kernel.
inline PyObject* run_linear(const LinearKernel& kernel, TensorDType dtype, LinearView* call) {
  const TensorReader& reader = tensor_reader();
  int64_t sizes[kMaxTensorDim];
  for (int64_t d = 0; d < call->x.dim; ++d) sizes[d] = call->x.sizes[d];
  sizes[call->x.dim - 1] = call->args.columns();
  NewTensor out;
  if (!reader.make(call->x.dim, sizes, dtype, &out)) return without_outputs();
  call->args.out = out.data;
  const int threads = reader.threads();
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = linear(call->args, kernel, threads, false);
  Py_END_ALLOW_THREADS;
  if (status != Status::kOutOfMemory) return out.tensor;
  Py_DECREF(out.tensor);
  return PyErr_NoMemory();
}

// Reads the names of the kernels of each dtype; false with an exception set.
inline bool read_linear_kernels(PyObject* names, const LinearKernel** out) {
  if (!PyTuple_Check(names) || PyTuple_Size(names) != kLinearDTypes) {
    PyErr_SetString(PyExc_TypeError, "kernels: expected a tuple of 3 names");
    return false;
  }
  for (int i = 0; i < kLinearDTypes; ++i) {
    out[i] = read_kernel(PyTuple_GetItem(names, i), kLinearKernels, "linear_kernels");
    if (out[i] == nullptr) return false;
  }
  return true;
}

}  // namespace torchyard

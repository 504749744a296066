// linear's calls that are served without Python's help: see torchyard_cpu/_native.pyi,
// DirectLinear.
#include <cstring>
#include <new>

#include "linear/dispatch.h"
#include "python/admitted.h"
#include "python/arguments.h"
#include "python/direct_type.h"
#include "python/linear_methods.h"
#include "python/torch_tensors.h"

namespace torchyard {

namespace {

// What torchyard_kernels.contracts.linear.LinearRequest says of a call that may be served here.
struct Asked {
  int64_t dtype;  // of DType
  int64_t rows, outputs, depth;
  int64_t packed;
  int64_t bias;
};

constexpr int kLinearDTypes = 3;

struct DirectLinear {
  PyObject_HEAD;
  Torch torch;
  const LinearKernel* kernels[kLinearDTypes];  // in DType's order
  Admitted<Asked> admitted;
};

// The place of torch's number in DType, or -1.
int linear_dtype(const Torch& torch, int32_t dtype) {
  if (dtype == torch.float32) return static_cast<int>(DType::kFloat32);
  if (dtype == torch.bfloat16) return static_cast<int>(DType::kBFloat16);
  return dtype == torch.float16 ? static_cast<int>(DType::kFloat16) : -1;
}

// Tells rows of x in two strides at most; false where that cannot be done.
bool read_levels(const SeenTensor& x, LinearRows* out, int64_t* rows) {
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

// `outputs` of -1: a plain weight; else a packed one's.
bool read_seen_weight(const SeenTensor& weight, int64_t outputs, int pair, LinearArgs* args) {
  if (outputs < 0) {
    if (weight.dim != 2) return false;
    args->outputs = weight.sizes[0];
    args->depth = weight.sizes[1];
    args->weight = {weight.data, false, 0, weight.strides[0], weight.strides[1]};
    return weight.strides[0] == 1 || weight.strides[1] == 1;
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

// serve(x, weight, outputs, bias)
PyObject* serve(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 4) {
    PyErr_Format(PyExc_TypeError, "serve: expected 4 arguments, got %zd", argc);
    return nullptr;
  }
  const DirectLinear& direct = *reinterpret_cast<DirectLinear*>(self);
  const Torch& torch = direct.torch;
  const int64_t outputs = PyLong_AsLongLong(argv[2]);
  if (outputs == -1 && PyErr_Occurred() != nullptr) return nullptr;
  const bool biased = argv[3] != Py_None;
  SeenTensor x, weight, bias;
  if (!torch.see(argv[0], &x) || !torch.see(argv[1], &weight) ||
      (biased && !torch.see(argv[3], 1, &bias))) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    Py_RETURN_NONE;
  }
  const int dtype = linear_dtype(torch, x.dtype);
  LinearArgs args;
  int64_t rows;
  if (dtype < 0 || x.dim < 1 || weight.dtype != x.dtype) Py_RETURN_NONE;
  args.batches = 1;
  args.depth = x.sizes[x.dim - 1];
  const int pair = static_cast<DType>(dtype) == DType::kBFloat16 ? 2 : 1;
  const int64_t depth = args.depth;
  if (depth < 1 || x.strides[x.dim - 1] != 1 || !read_levels(x, &args.x, &rows) || rows < 1 ||
      !read_seen_weight(weight, outputs, pair, &args) || args.depth != depth || args.outputs < 1 ||
      (biased &&
       (bias.dtype != x.dtype || bias.sizes[0] != args.outputs || bias.strides[0] != 1)) ||
      !direct.admitted.holds({dtype, rounded(rows), args.outputs, depth, outputs >= 0, biased})) {
    Py_RETURN_NONE;
  }
  args.rows = rows;
  args.prologue = nullptr;
  args.epilogue = nullptr;
  args.bias = biased ? bias.data : nullptr;
  int64_t sizes[kMaxTensorDim];
  for (int64_t d = 0; d < x.dim; ++d) sizes[d] = x.sizes[d];
  sizes[x.dim - 1] = args.outputs;
  void* out = torch.make(x.dim, sizes, x.dtype, &args.out);
  if (out == nullptr) return nullptr;
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = linear(args, *direct.kernels[dtype], torch.threads(), false);
  Py_END_ALLOW_THREADS;
  if (status == Status::kOutOfMemory) {
    torch.drop(out);
    return PyErr_NoMemory();
  }
  return torch.give(out);
}

PyObject* admit(PyObject* self, PyObject* tuple) {
  return admit_request<DirectLinear, Asked>(self, tuple, kLinearDTypes);
}

PyMethodDef methods[] = {
    {"serve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(serve)), METH_FASTCALL,
     "Compute a call whose request was admitted; None for any other."},
    {"admit", admit, METH_O, "Serve calls that make this request from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(end_direct<DirectLinear>)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"torchyard_cpu._native.DirectLinear", sizeof(DirectLinear), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyTypeObject* type;

// direct_linear(kernels, probe, handle, tensor type, parameter type, wrap, takes)
PyObject* direct_linear(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 7 || !PyTuple_Check(argv[0]) || PyTuple_Size(argv[0]) != kLinearDTypes) {
    PyErr_SetString(PyExc_TypeError, "direct_linear: expected 7 arguments, 3 kernels first");
    return nullptr;
  }
  const LinearKernel* kernels[kLinearDTypes];
  for (int i = 0; i < kLinearDTypes; ++i) {
    kernels[i] = read_kernel(PyTuple_GetItem(argv[0], i), find_linear, "linear_kernels");
    if (kernels[i] == nullptr) return nullptr;
  }
  DirectLinear* direct = PyObject_New(DirectLinear, type);
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
    {"direct_linear", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(direct_linear)),
     METH_FASTCALL, "Return a DirectLinear, or None where torch lacks what it needs."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_linear_direct(PyObject* module) {
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (type == nullptr) return -1;
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  if (PyModule_AddObject(module, "DirectLinear", reinterpret_cast<PyObject*>(type)) != 0) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace torchyard

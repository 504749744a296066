// Recurrent calls that are served without Python's help: see torchyard_cpu/_native.pyi,
// DirectRecurrent.
#include <cstring>
#include <new>

#include "python/admitted.h"
#include "python/arguments.h"
#include "python/direct_type.h"
#include "python/recurrent_arguments.h"
#include "python/recurrent_methods.h"
#include "python/torch_tensors.h"
#include "recurrent/recurrent.h"

namespace torchyard {

namespace {

// What torchyard_kernels.contracts.recurrent.RecurrentRequest says of a call that may be served
// here: of packed weights, with no lengths and no gradient.
struct Asked {
  int64_t dtype;
  int64_t kind;
  int64_t steps, batch;
  int64_t inputs, hidden, outputs, projected;
  int64_t layers, directions;
  int64_t bias;
};

struct DirectRecurrent {
  PyObject_HEAD;
  Torch torch;
  Admitted<Asked> admitted;
};

// Weights as a kernel reads them; whoever made it keeps their memory.
struct PackedWeights {
  PyObject_HEAD;
  const RecurrentKernel* kernel;
  RecurrentSizes sizes;
  const std::byte* data;
  int64_t bias;
};

PyTypeObject* direct_type;
PyTypeObject* packed_type;

bool is_contiguous(const SeenTensor& x) {
  int64_t stride = 1;
  for (int64_t d = x.dim - 1; d >= 0; --d) {
    if (x.sizes[d] != 1 && x.strides[d] != stride) return false;
    stride *= x.sizes[d];
  }
  return true;
}

bool is_state(const SeenTensor& state, int32_t dtype, int64_t cells, int64_t batch, int64_t size) {
  return state.dtype == dtype && state.sizes[0] == cells && state.sizes[1] == batch &&
         state.sizes[2] == size && is_contiguous(state);
}

// Frees what was made of three tensors; returns null.
PyObject* give_up(const Torch& torch, void* const (&made)[3]) {
  for (void* tensor : made) {
    if (tensor != nullptr) torch.drop(tensor);
  }
  return nullptr;
}

// serve(weights, input, hidden, cell or None)
PyObject* serve(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 4) {
    PyErr_Format(PyExc_TypeError, "serve: expected 4 arguments, got %zd", argc);
    return nullptr;
  }
  const DirectRecurrent& direct = *reinterpret_cast<DirectRecurrent*>(self);
  const Torch& torch = direct.torch;
  if (Py_TYPE(argv[0]) != packed_type) Py_RETURN_NONE;
  const PackedWeights& weights = *reinterpret_cast<PackedWeights*>(argv[0]);
  const RecurrentSizes& sizes = weights.sizes;
  const bool lstm = sizes.kind == RecurrentKind::kLstm;
  SeenTensor input, hidden, cell;
  if (lstm == (argv[3] == Py_None) || !torch.see(argv[1], 3, &input) ||
      !torch.see(argv[2], 3, &hidden) || (lstm && !torch.see(argv[3], 3, &cell))) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    Py_RETURN_NONE;
  }
  const int32_t dtypes[] = {torch.float32, torch.bfloat16, torch.float16};
  const int dtype = static_cast<int>(weights.kernel->dtype);
  const int64_t steps = input.sizes[0], batch = input.sizes[1];
  const int64_t cells = sizes.layers * sizes.directions;
  if (input.dtype != dtypes[dtype] || input.sizes[2] != sizes.inputs || steps < 1 || batch < 1 ||
      (input.strides[2] != 1 && sizes.inputs != 1) ||
      !is_state(hidden, input.dtype, cells, batch, sizes.outputs) ||
      (lstm && !is_state(cell, input.dtype, cells, batch, sizes.hidden)) ||
      !direct.admitted.holds({dtype, static_cast<int64_t>(sizes.kind), rounded(steps),
                              rounded(batch), sizes.inputs, sizes.hidden, sizes.outputs,
                              sizes.projected, sizes.layers, sizes.directions, weights.bias})) {
    Py_RETURN_NONE;
  }
  void* made[3] = {};
  RecurrentArgs args = {};
  args.sizes = sizes;
  args.steps = steps;
  args.batch = batch;
  args.input = input.data;
  args.input_step = input.strides[0];
  args.input_row = input.strides[1];
  args.hidden = hidden.data;
  args.packed = weights.data;
  const int64_t output_sizes[] = {steps, batch, sizes.directions * sizes.outputs};
  made[0] = torch.make(3, output_sizes, input.dtype, &args.output);
  if (made[0] == nullptr) return give_up(torch, made);
  made[1] = torch.make(3, hidden.sizes, input.dtype, &args.hidden_out);
  if (made[1] == nullptr) return give_up(torch, made);
  if (lstm) {
    args.cell = cell.data;
    made[2] = torch.make(3, cell.sizes, input.dtype, &args.cell_out);
    if (made[2] == nullptr) return give_up(torch, made);
  }
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = recurrent_forward(args, *weights.kernel, torch.threads(), false);
  Py_END_ALLOW_THREADS;
  if (status == Status::kOutOfMemory) {
    give_up(torch, made);
    return PyErr_NoMemory();
  }
  if (!lstm) return torch.give_pair(made[0], made[1]);
  PyObject* output = torch.give(made[0]);
  PyObject* state = torch.give_pair(made[1], made[2]);
  PyObject* results =
      output == nullptr || state == nullptr ? nullptr : PyTuple_Pack(2, output, state);
  Py_XDECREF(output);
  Py_XDECREF(state);
  return results;
}

PyObject* admit(PyObject* self, PyObject* tuple) {
  Asked asked;
  if (!read_request(tuple, &asked)) return nullptr;
  reinterpret_cast<DirectRecurrent*>(self)->admitted.add(asked);
  Py_RETURN_NONE;
}

void dealloc_packed(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyMethodDef direct_methods[] = {
    {"serve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(serve)), METH_FASTCALL,
     "Compute a call whose request was admitted; None for any other."},
    {"admit", admit, METH_O, "Serve calls that make this request from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot direct_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(end_direct<DirectRecurrent>)},
    {Py_tp_methods, direct_methods},
    {0, nullptr},
};

PyType_Slot packed_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_packed)},
    {0, nullptr},
};

PyType_Spec direct_spec = {"torchyard_cpu._native.DirectRecurrent", sizeof(DirectRecurrent), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, direct_slots};

PyType_Spec packed_spec = {"torchyard_cpu._native.PackedWeights", sizeof(PackedWeights), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, packed_slots};

// direct_recurrent(probe, handle, tensor type, parameter type, wrap, takes)
PyObject* direct_recurrent(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 6) {
    PyErr_Format(PyExc_TypeError, "direct_recurrent: expected 6 arguments, got %zd", argc);
    return nullptr;
  }
  DirectRecurrent* direct = PyObject_New(DirectRecurrent, direct_type);
  if (direct == nullptr) return nullptr;
  new (&direct->torch) Torch();
  new (&direct->admitted) Admitted<Asked>();
  if (direct->torch.connect(argv[0], argv[1], argv[2], argv[3], argv[4], argv[5] == Py_True)) {
    return reinterpret_cast<PyObject*>(direct);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(direct));
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

// packed_weights(kernel, sizes, address, bias)
PyObject* packed_weights(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 4) {
    PyErr_Format(PyExc_TypeError, "packed_weights: expected 4 arguments, got %zd", argc);
    return nullptr;
  }
  RecurrentSizes sizes;
  const RecurrentKernel* kernel = read_kernel(argv[0], find_recurrent, "recurrent_kernels");
  if (kernel == nullptr || !read_recurrent_sizes(argv[1], &sizes)) return nullptr;
  const int64_t address = PyLong_AsLongLong(argv[2]);
  if (address == -1 && PyErr_Occurred() != nullptr) return nullptr;
  PackedWeights* weights = PyObject_New(PackedWeights, packed_type);
  if (weights == nullptr) return nullptr;
  weights->kernel = kernel;
  weights->sizes = sizes;
  weights->data = pointer<const std::byte>(address);
  weights->bias = argv[3] == Py_True;
  return reinterpret_cast<PyObject*>(weights);
}

PyMethodDef functions[] = {
    {"direct_recurrent",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(direct_recurrent)), METH_FASTCALL,
     "Return a DirectRecurrent, or None where torch lacks what it needs."},
    {"packed_weights", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(packed_weights)),
     METH_FASTCALL, "Return packed weights as DirectRecurrent takes them."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_recurrent_direct(PyObject* module) {
  direct_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&direct_spec));
  packed_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&packed_spec));
  if (direct_type == nullptr || packed_type == nullptr) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace torchyard

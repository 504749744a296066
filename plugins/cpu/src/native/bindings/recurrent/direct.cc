// Recurrent calls that are served without Python's help: see torchyard_cpu/_native.pyi,
// DirectRecurrent.
#include <cstring>
#include <new>

#include "bindings/admitted.h"
#include "bindings/arguments.h"
#include "bindings/direct.h"
#include "bindings/direct_type.h"
#include "bindings/recurrent/arguments.h"
#include "bindings/recurrent/plain.h"
#include "bindings/torch_tensors.h"
#include "recurrent/recurrent.h"

namespace torchyard {

namespace {

// What torchyard_kernels.recurrent.contract.RecurrentRequest says of a call that may be served
// here: with no lengths and no gradient.
struct Asked {
  int64_t dtype;
  int64_t kind;
  int64_t steps, batch;
  int64_t inputs, hidden, outputs, projected;
  int64_t layers, directions;
  int64_t bias;
  int64_t packed;
};

constexpr int kDTypes = 3;

struct DirectRecurrent {
  PyObject_HEAD;
  Torch torch;
  PyObject* kinds;                          // a tuple: what Python calls each kind
  PyObject* layers;                         // a tuple: torch's function for each kind; or null
  const RecurrentKernel* kernels[kDTypes];  // of each dtype, or null
  // Of each dtype and kind whether anything was admitted: calls that others serve are told from
  // these before their weights are looked at.
  bool met[kDTypes][kRecurrentKinds];
  Admitted<Asked> admitted;
};

// Weights as a kernel reads them, within a tensor's memory.
struct PackedWeights {
  PyObject_HEAD;
  const RecurrentKernel* kernel;
  RecurrentSizes sizes;
  PyObject* tensor;
  const std::byte* data;
  int64_t bias;
};

PyTypeObject* direct_type;
PyTypeObject* packed_type;
PyObject* native_name;  // the attribute of Python's packed weights that holds PackedWeights

bool is_state(const SeenTensor& state, int32_t dtype, int64_t cells, int64_t batch, int64_t size) {
  return state.dtype == dtype && state.sizes[0] == cells && state.sizes[1] == batch &&
         state.sizes[2] == size && is_contiguous(state);
}

// Frees what was made of three tensors.
void give_up(const Torch& torch, void* const (&made)[3]) {
  for (void* tensor : made) {
    if (tensor != nullptr) torch.drop(tensor);
  }
}

// The tensors of a call.
struct Given {
  SeenTensor input, hidden, cell;
  int dtype;  // place among kDTypes
};

bool see_three(const Torch& torch, PyObject* object, SeenTensor* out) {
  return torch.see(object, 3, out);
}

// Sees input, hidden and cell or None; false where they are not plain ones of a dtype and for a
// kind of which anything was admitted.
bool see_given(const DirectRecurrent& direct, PyObject* const* argv, RecurrentKind kind,
               Given* out) {
  const Torch& torch = direct.torch;
  const bool lstm = kind == RecurrentKind::kLstm;
  if (lstm == (argv[2] == Py_None) || !see_three(torch, argv[0], &out->input)) return false;
  const int32_t dtypes[kDTypes] = {torch.float32, torch.bfloat16, torch.float16};
  out->dtype = 0;
  while (out->dtype < kDTypes && out->input.dtype != dtypes[out->dtype]) ++out->dtype;
  return out->dtype < kDTypes && direct.met[out->dtype][static_cast<int>(kind)] &&
         see_three(torch, argv[1], &out->hidden) &&
         (!lstm || see_three(torch, argv[2], &out->cell));
}

// Whether a call fits weights of these sizes, and its request was admitted.
bool holds(const DirectRecurrent& direct, const Given& given, const RecurrentSizes& sizes,
           bool bias, bool packed) {
  const SeenTensor& input = given.input;
  const int64_t steps = input.sizes[0], batch = input.sizes[1];
  const int64_t cells = sizes.layers * sizes.directions;
  return input.sizes[2] == sizes.inputs && steps >= 1 && batch >= 1 &&
         (input.strides[2] == 1 || sizes.inputs == 1) &&
         is_state(given.hidden, input.dtype, cells, batch, sizes.outputs) &&
         (sizes.kind != RecurrentKind::kLstm ||
          is_state(given.cell, input.dtype, cells, batch, sizes.hidden)) &&
         direct.admitted.holds({given.dtype, static_cast<int64_t>(sizes.kind), rounded(steps),
                                rounded(batch), sizes.inputs, sizes.hidden, sizes.outputs,
                                sizes.projected, sizes.layers, sizes.directions, bias, packed});
}

PyObject* none_unless_failed() {
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

// Computes a call, with packed weights or with `plain` ones.
PyObject* compute(const Torch& torch, const Given& given, const RecurrentSizes& sizes,
                  const RecurrentKernel& kernel, const std::byte* packed,
                  const CellWeights* plain) {
  const SeenTensor& input = given.input;
  const bool lstm = sizes.kind == RecurrentKind::kLstm;
  void* made[3] = {};
  RecurrentArgs args = {};
  args.sizes = sizes;
  args.steps = input.sizes[0];
  args.batch = input.sizes[1];
  args.input = input.data;
  args.input_step = input.strides[0];
  args.input_row = input.strides[1];
  args.hidden = given.hidden.data;
  args.packed = packed;
  const int64_t output_sizes[] = {args.steps, args.batch, sizes.directions * sizes.outputs};
  made[0] = torch.make(3, output_sizes, input.dtype, &args.output);
  made[1] = torch.make(3, given.hidden.sizes, input.dtype, &args.hidden_out);
  if (lstm) {
    args.cell = given.cell.data;
    made[2] = torch.make(3, given.cell.sizes, input.dtype, &args.cell_out);
  }
  if (made[0] == nullptr || made[1] == nullptr || (lstm && made[2] == nullptr)) {
    give_up(torch, made);
    Py_RETURN_NONE;
  }
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  const int threads = torch.threads();
  status = plain == nullptr ? recurrent_forward(args, kernel, threads, false)
                            : recurrent_forward_packing(args, plain, kernel, threads);
  Py_END_ALLOW_THREADS;
  if (status == Status::kOutOfMemory) {
    give_up(torch, made);
    return PyErr_NoMemory();
  }
  if (!lstm) return torch.give_pair(made[0], made[1]);
  PyObject* output = torch.give(made[0]);
  PyObject* hidden = torch.give(made[1]);
  PyObject* cell = torch.give(made[2]);
  PyObject* results = output == nullptr || hidden == nullptr || cell == nullptr
                          ? nullptr
                          : PyTuple_Pack(3, output, hidden, cell);
  Py_XDECREF(output);
  Py_XDECREF(hidden);
  Py_XDECREF(cell);
  return results;
}

// The places of a call's arguments.
enum Argument { kKind, kWeights, kPacked, kMade, kInput, kHidden, kCell, kLayers, kBoth, kCount };

// Whether the tensor still has the memory that the weights were laid out in.
bool is_in_place(const Torch& torch, const PackedWeights& weights) {
  SeenTensor seen;
  if (!torch.see_integers(weights.tensor, 1, &seen)) return false;
  const std::byte* start = static_cast<const std::byte*>(seen.data);
  const int64_t bytes =
      static_cast<int64_t>(recurrent_packed_bytes(weights.sizes, *weights.kernel));
  return weights.data >= start && weights.data + bytes <= start + seen.sizes[0];
}

PyObject* serve_packed(const DirectRecurrent& direct, const Given& given, RecurrentKind kind,
                       PyObject* made) {
  if (made == Py_None) Py_RETURN_NONE;
  PyObject* native = PyObject_GetAttr(made, native_name);
  if (native == nullptr) {
    // Another implementation's.
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  PyObject* result = nullptr;
  const PackedWeights& weights = *reinterpret_cast<PackedWeights*>(native);
  if (Py_TYPE(native) == packed_type && weights.sizes.kind == kind &&
      given.dtype == static_cast<int>(weights.kernel->dtype) &&
      is_in_place(direct.torch, weights) &&
      holds(direct, given, weights.sizes, weights.bias != 0, true)) {
    result = compute(direct.torch, given, weights.sizes, *weights.kernel, weights.data, nullptr);
  } else {
    result = none_unless_failed();
  }
  Py_DECREF(native);
  return result;
}

// Calls torch's own layer.
PyObject* call_layer(PyObject* layer, PyObject* const* argv, bool lstm, bool bias, bool both) {
  PyObject* state = lstm ? PyTuple_Pack(2, argv[kHidden], argv[kCell]) : argv[kHidden];
  PyObject* dropout = PyFloat_FromDouble(0.0);
  PyObject* results = nullptr;
  if (state != nullptr && dropout != nullptr) {
    results = PyObject_CallFunctionObjArgs(layer, argv[kInput], state, argv[kWeights],
                                           bias ? Py_True : Py_False, argv[kLayers], dropout,
                                           Py_False, both ? Py_True : Py_False, Py_False, nullptr);
  }
  Py_XDECREF(dropout);
  if (lstm) Py_XDECREF(state);
  return results;
}

// serve(kind, weights, packed, made, input, hidden, cell or None, layers, bidirectional)
PyObject* serve(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != kCount) {
    PyErr_Format(PyExc_TypeError, "serve: expected %d arguments, got %zd", kCount, argc);
    return nullptr;
  }
  const DirectRecurrent& direct = *reinterpret_cast<DirectRecurrent*>(self);
  int64_t place = 0;
  while (place < kRecurrentKinds && PyTuple_GetItem(direct.kinds, place) != argv[kKind]) ++place;
  if (place == kRecurrentKinds) Py_RETURN_NONE;
  const RecurrentKind kind = static_cast<RecurrentKind>(place);
  Given given;
  if (!see_given(direct, argv + kInput, kind, &given)) return none_unless_failed();
  const bool packed = argv[kPacked] == Py_True;
  if (packed && direct.layers == nullptr) return serve_packed(direct, given, kind, argv[kMade]);
  const int64_t layers = PyLong_AsLongLong(argv[kLayers]);
  const int both = PyObject_IsTrue(argv[kBoth]);
  PlainWeights weights;
  if (both < 0 || layers < 1 || layers > kMostRecurrentCells ||
      !PlainReader(direct.torch, given.input.dtype)
           .read(argv[kWeights], kind, layers, both + 1, &weights) ||
      !holds(direct, given, weights.sizes, weights.bias, packed)) {
    return none_unless_failed();
  }
  if (direct.layers != nullptr) {
    return call_layer(PyTuple_GetItem(direct.layers, place), argv, kind == RecurrentKind::kLstm,
                      weights.bias, both != 0);
  }
  // Another thread may change a list while the kernel reads what is in it.
  PyObject* held = PySequence_Tuple(argv[kWeights]);
  if (held == nullptr) return nullptr;
  PyObject* results = compute(direct.torch, given, weights.sizes, *direct.kernels[given.dtype],
                              nullptr, weights.cells);
  Py_DECREF(held);
  return results;
}

PyObject* admit(PyObject* self, PyObject* tuple) {
  Asked asked;
  if (!read_request(tuple, &asked)) return nullptr;
  if (asked.dtype < 0 || asked.dtype >= kDTypes || asked.kind < 0 ||
      asked.kind >= kRecurrentKinds) {
    PyErr_SetString(PyExc_ValueError, "request: expected a dtype and a kind that have kernels");
    return nullptr;
  }
  DirectRecurrent& direct = *reinterpret_cast<DirectRecurrent*>(self);
  direct.met[asked.dtype][asked.kind] = true;
  direct.admitted.add(asked);
  Py_RETURN_NONE;
}

void dealloc_direct(PyObject* self) {
  DirectRecurrent& direct = *reinterpret_cast<DirectRecurrent*>(self);
  Py_XDECREF(direct.kinds);
  Py_XDECREF(direct.layers);
  end_direct<DirectRecurrent>(self);
}

void dealloc_packed(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_DECREF(reinterpret_cast<PackedWeights*>(self)->tensor);
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
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_direct)},
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

bool is_tuple_of(PyObject* object, Py_ssize_t count) {
  return PyTuple_Check(object) && PyTuple_Size(object) == count;
}

// direct_recurrent(kinds, kernels or layers, probe, handle, tensor type, parameter type, wrap,
// takes)
PyObject* direct_recurrent(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  constexpr int kKinds = static_cast<int>(kRecurrentKinds);
  if (argc != 8 || !is_tuple_of(argv[0], kKinds) ||
      !(is_tuple_of(argv[1], kDTypes) || is_tuple_of(argv[1], kKinds))) {
    PyErr_Format(PyExc_TypeError,
                 "direct_recurrent: expected a tuple of %d kinds, one of %d kernels' names or of "
                 "%d functions, and 6 more arguments",
                 kKinds, kDTypes, kKinds);
    return nullptr;
  }
  const bool computes = is_tuple_of(argv[1], kDTypes);
  const RecurrentKernel* kernels[kDTypes] = {};
  for (int i = 0; computes && i < kDTypes; ++i) {
    kernels[i] = read_kernel(PyTuple_GetItem(argv[1], i), find_recurrent, "recurrent_kernels");
    if (kernels[i] == nullptr) return nullptr;
  }
  DirectRecurrent* direct = PyObject_New(DirectRecurrent, direct_type);
  if (direct == nullptr) return nullptr;
  new (&direct->torch) Torch();
  new (&direct->admitted) Admitted<Asked>();
  Py_INCREF(argv[0]);
  direct->kinds = argv[0];
  if (!computes) Py_INCREF(argv[1]);
  direct->layers = computes ? nullptr : argv[1];
  std::memcpy(direct->kernels, kernels, sizeof(kernels));
  std::memset(direct->met, 0, sizeof(direct->met));
  if (direct->torch.connect(argv[2], argv[3], argv[4], argv[5], argv[6], argv[7] == Py_True)) {
    return reinterpret_cast<PyObject*>(direct);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(direct));
  return none_unless_failed();
}

// packed_weights(kernel, sizes, tensor, address, bias)
PyObject* packed_weights(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 5) {
    PyErr_Format(PyExc_TypeError, "packed_weights: expected 5 arguments, got %zd", argc);
    return nullptr;
  }
  RecurrentSizes sizes;
  const RecurrentKernel* kernel = read_kernel(argv[0], find_recurrent, "recurrent_kernels");
  if (kernel == nullptr || !read_recurrent_sizes(argv[1], &sizes)) return nullptr;
  const int64_t address = PyLong_AsLongLong(argv[3]);
  if (address == -1 && PyErr_Occurred() != nullptr) return nullptr;
  PackedWeights* weights = PyObject_New(PackedWeights, packed_type);
  if (weights == nullptr) return nullptr;
  weights->kernel = kernel;
  weights->sizes = sizes;
  Py_INCREF(argv[2]);
  weights->tensor = argv[2];
  weights->data = pointer<const std::byte>(address);
  weights->bias = argv[4] == Py_True;
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
  native_name = PyUnicode_InternFromString("native");
  if (direct_type == nullptr || packed_type == nullptr || native_name == nullptr) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace torchyard

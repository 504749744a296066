// The fast path of recurrent layers, see torchyard_cpu/_native.pyi: recurrent_fast_path.
#include "bindings/fast_path.h"

#include <cstring>

#include "bindings/arguments.h"
#include "bindings/recurrent/arguments.h"
#include "bindings/recurrent/weights.h"
#include "bindings/request_cache.h"
#include "bindings/tensor_reader.h"
#include "recurrent/recurrent.h"

namespace torchyard {

namespace {

// torchyard_kernels.recurrent.contract.RecurrentRequest of a call without lengths and gradients, in
// words of eight bytes.
struct RequestKey {
  int64_t dtype;
  int64_t kind;
  int64_t steps, batch;
  int64_t inputs, hidden, outputs, projected;
  int64_t layers, directions;
  int64_t bias;
  int64_t packed;
};

constexpr int kDTypes = 3;

// Weights as a kernel reads them, within a tensor's memory.
struct PackedWeights {
  PyObject_HEAD;
  const RecurrentKernel* kernel;
  RecurrentSizes sizes;
  PyObject* tensor;
  const std::byte* data;
  int64_t bias;
};

PyTypeObject* packed_type;
PyObject* native_name;  // the attribute of Python's packed weights that holds PackedWeights

bool is_state(const TensorView& state, TensorDType dtype, int64_t cells, int64_t batch,
              int64_t size) {
  return state.dtype == dtype && state.sizes[0] == cells && state.sizes[1] == batch &&
         state.sizes[2] == size && is_contiguous(state);
}

// The tensors of a call.
struct Given {
  TensorView input, hidden, cell;
  int dtype;  // of DType
};

// Makes the outputs, of which an LSTM has three; false where they cannot be had.
bool make_outputs(const Given& given, const RecurrentSizes& sizes, NewTensor (&made)[3]) {
  const TensorReader& reader = tensor_reader();
  const TensorView& input = given.input;
  const int64_t output[] = {input.sizes[0], input.sizes[1], sizes.directions * sizes.outputs};
  return reader.make(3, output, input.dtype, &made[0]) &&
         reader.make(3, given.hidden.sizes, input.dtype, &made[1]) &&
         (sizes.kind != RecurrentKind::kLstm ||
          reader.make(3, given.cell.sizes, input.dtype, &made[2]));
}

// Computes a call, with packed weights or with `plain` ones.
PyObject* compute(const Given& given, const RecurrentSizes& sizes, const RecurrentKernel& kernel,
                  const std::byte* packed, const CellWeights* plain) {
  const TensorView& input = given.input;
  const bool lstm = sizes.kind == RecurrentKind::kLstm;
  NewTensor made[3] = {};
  PyObject* results = nullptr;
  if (make_outputs(given, sizes, made)) {
    RecurrentArgs args = {};
    args.sizes = sizes;
    args.steps = input.sizes[0];
    args.batch = input.sizes[1];
    args.input = input.data;
    args.input_step = input.strides[0];
    args.input_row = input.strides[1];
    args.hidden = given.hidden.data;
    args.packed = packed;
    args.output = made[0].data;
    args.hidden_out = made[1].data;
    if (lstm) {
      args.cell = given.cell.data;
      args.cell_out = made[2].data;
    }
    const int threads = tensor_reader().threads();
    Status status;
    Py_BEGIN_ALLOW_THREADS;
    status = plain == nullptr ? recurrent_forward(args, kernel, threads, false)
                              : recurrent_forward_packing(args, plain, kernel, threads);
    Py_END_ALLOW_THREADS;
    results = status == Status::kOutOfMemory ? PyErr_NoMemory()
              : lstm ? PyTuple_Pack(3, made[0].tensor, made[1].tensor, made[2].tensor)
                     : PyTuple_Pack(2, made[0].tensor, made[1].tensor);
  } else {
    results = without_outputs();
  }
  for (const NewTensor& one : made) Py_XDECREF(one.tensor);
  return results;
}

// The places of a call's arguments.
enum Argument { kKind, kWeights, kPacked, kMade, kInput, kHidden, kCell, kLayers, kBoth, kCount };

// Whether the tensor still has the memory that the weights were laid out in.
bool is_in_place(const PackedWeights& weights) {
  TensorView view;
  if (!tensor_reader().read_integers(weights.tensor, 1, &view)) return false;
  const std::byte* start = static_cast<const std::byte*>(view.data);
  const int64_t bytes =
      static_cast<int64_t>(recurrent_packed_bytes(weights.sizes, *weights.kernel));
  return weights.data >= start && weights.data + bytes <= start + view.sizes[0];
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

bool is_tuple_of(PyObject* object, Py_ssize_t count) {
  return PyTuple_Check(object) && PyTuple_Size(object) == count;
}

struct Path {
  PyObject* kinds;                          // a tuple: what Python calls each kind
  PyObject* layers;                         // a tuple: torch's function for each kind; or null
  const RecurrentKernel* kernels[kDTypes];  // of each dtype, or null
  // Of each dtype and kind whether a request was enabled: other calls are refused before their
  // weights are read.
  bool enabled[kDTypes][kRecurrentKinds];
  RequestCache<RequestKey> requests;

  // try_call(kind, weights, packed, made, input, hidden, cell or None, layers, bidirectional)
  PyObject* try_call(PyObject* const* argv, Py_ssize_t argc) {
    if (!takes_arguments(kCount, argc)) return nullptr;
    int64_t place = 0;
    while (place < kRecurrentKinds && PyTuple_GetItem(kinds, place) != argv[kKind]) ++place;
    if (place == kRecurrentKinds) Py_RETURN_NONE;
    const RecurrentKind kind = static_cast<RecurrentKind>(place);
    Given given;
    if (!read_given(argv + kInput, kind, &given)) return not_computed();
    const bool packed = argv[kPacked] == Py_True;
    if (packed && layers == nullptr) return try_packed(given, kind, argv[kMade]);
    const int64_t layer_count = PyLong_AsLongLong(argv[kLayers]);
    const int both = PyObject_IsTrue(argv[kBoth]);
    if (both < 0 || layer_count < 1 || layer_count > kMostRecurrentCells ||
        (!PyList_CheckExact(argv[kWeights]) && !PyTuple_CheckExact(argv[kWeights]))) {
      return not_computed();
    }
    // Another thread may change a list while its tensors are read.
    PyObject* held = PySequence_Tuple(argv[kWeights]);
    if (held == nullptr) return nullptr;
    PyObject* results = try_plain(argv, held, kind, given, {layer_count, both != 0, packed});
    Py_DECREF(held);
    return results;
  }

  PyObject* enable(PyObject* const* argv, Py_ssize_t argc) {
    RequestKey key;
    if (argc != 1) {
      PyErr_Format(PyExc_TypeError, "enable: expected 1 argument, got %zd", argc);
      return nullptr;
    }
    if (!read_request(argv[0], &key)) return nullptr;
    if (key.dtype < 0 || key.dtype >= kDTypes || key.kind < 0 || key.kind >= kRecurrentKinds) {
      PyErr_SetString(PyExc_ValueError, "request: expected a dtype and a kind that have kernels");
      return nullptr;
    }
    enabled[key.dtype][key.kind] = true;
    requests.add(key);
    Py_RETURN_NONE;
  }

  void clear() {
    std::memset(enabled, 0, sizeof(enabled));
    requests.clear();
  }

  void end() {
    Py_XDECREF(kinds);
    Py_XDECREF(layers);
  }

 private:
  struct Layers {
    int64_t count;
    bool both;
    bool packed;
  };

  // Reads input, hidden and cell or None; false where they are not plain ones of a dtype and for a
  // kind of which a request was enabled.
  bool read_given(PyObject* const* argv, RecurrentKind kind, Given* out) const {
    const TensorReader& reader = tensor_reader();
    const bool lstm = kind == RecurrentKind::kLstm;
    if (lstm == (argv[2] == Py_None) || !reader.read(argv[0], 3, &out->input)) return false;
    out->dtype = kernel_dtype(out->input.dtype);
    return out->dtype >= 0 && enabled[out->dtype][static_cast<int>(kind)] &&
           reader.read(argv[1], 3, &out->hidden) && (!lstm || reader.read(argv[2], 3, &out->cell));
  }

  // Whether a call fits weights of these sizes, and its request was enabled.
  bool computes(const Given& given, const RecurrentSizes& sizes, bool bias, bool packed) const {
    const TensorView& input = given.input;
    const int64_t steps = input.sizes[0], batch = input.sizes[1];
    const int64_t cells = sizes.layers * sizes.directions;
    return input.sizes[2] == sizes.inputs && steps >= 1 && batch >= 1 &&
           (input.strides[2] == 1 || sizes.inputs == 1) &&
           is_state(given.hidden, input.dtype, cells, batch, sizes.outputs) &&
           (sizes.kind != RecurrentKind::kLstm ||
            is_state(given.cell, input.dtype, cells, batch, sizes.hidden)) &&
           requests.contains({given.dtype, static_cast<int64_t>(sizes.kind), rounded(steps),
                              rounded(batch), sizes.inputs, sizes.hidden, sizes.outputs,
                              sizes.projected, sizes.layers, sizes.directions, bias, packed});
  }

  PyObject* try_packed(const Given& given, RecurrentKind kind, PyObject* made) {
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
        given.dtype == static_cast<int>(weights.kernel->dtype) && is_in_place(weights) &&
        computes(given, weights.sizes, weights.bias != 0, true)) {
      result = compute(given, weights.sizes, *weights.kernel, weights.data, nullptr);
    } else {
      result = not_computed();
    }
    Py_DECREF(native);
    return result;
  }

  PyObject* try_plain(PyObject* const* argv, PyObject* weights, RecurrentKind kind,
                      const Given& given, const Layers& of) {
    PlainWeights plain;
    if (!PlainReader(given.input.dtype).read(weights, kind, of.count, of.both + 1, &plain) ||
        !computes(given, plain.sizes, plain.bias, of.packed)) {
      return not_computed();
    }
    if (layers == nullptr) {
      return compute(given, plain.sizes, *kernels[given.dtype], nullptr, plain.cells);
    }
    return call_layer(PyTuple_GetItem(layers, static_cast<Py_ssize_t>(kind)), argv,
                      kind == RecurrentKind::kLstm, plain.bias, of.both);
  }
};

void dealloc_packed(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_DECREF(reinterpret_cast<PackedWeights*>(self)->tensor);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyType_Slot packed_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_packed)},
    {0, nullptr},
};

PyType_Spec packed_spec = {"torchyard_cpu._native.PackedWeights", sizeof(PackedWeights), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, packed_slots};

// recurrent_fast_path(kinds, kernels or layers)
PyObject* recurrent_fast_path(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  constexpr int kKinds = static_cast<int>(kRecurrentKinds);
  if (argc != 2 || !is_tuple_of(argv[0], kKinds) ||
      !(is_tuple_of(argv[1], kDTypes) || is_tuple_of(argv[1], kKinds))) {
    PyErr_Format(PyExc_TypeError,
                 "recurrent_fast_path: expected a tuple of %d kinds, and one of %d kernels' names "
                 "or of %d functions",
                 kKinds, kDTypes, kKinds);
    return nullptr;
  }
  Path* path = allocate_path<Path>();
  if (path == nullptr) return nullptr;
  const bool native = is_tuple_of(argv[1], kDTypes);
  path->kinds = Py_NewRef(argv[0]);
  path->layers = native ? nullptr : Py_NewRef(argv[1]);
  path->clear();
  for (int i = 0; i < kDTypes; ++i) {
    path->kernels[i] = nullptr;
    if (!native) continue;
    path->kernels[i] =
        read_kernel(PyTuple_GetItem(argv[1], i), kRecurrentKernels, "recurrent_kernels");
    if (path->kernels[i] == nullptr) return drop_path(path);
  }
  return make_fast_path(path);
}

// packed_weights(kernel, sizes, tensor, address, bias)
PyObject* packed_weights(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 5) {
    PyErr_Format(PyExc_TypeError, "packed_weights: expected 5 arguments, got %zd", argc);
    return nullptr;
  }
  RecurrentSizes sizes;
  const RecurrentKernel* kernel = read_kernel(argv[0], kRecurrentKernels, "recurrent_kernels");
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
    path_maker("recurrent_fast_path", recurrent_fast_path),
    {"packed_weights", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(packed_weights)),
     METH_FASTCALL, "Return packed weights as a path of recurrent layers takes them."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_recurrent_fast_path(PyObject* module) {
  packed_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&packed_spec));
  native_name = PyUnicode_InternFromString("native");
  if (packed_type == nullptr || native_name == nullptr) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace torchyard

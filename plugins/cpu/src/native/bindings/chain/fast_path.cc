// The path of a chain, see torchyard_cpu/_native.pyi: chain_fast_path.
#include "bindings/fast_path.h"

#include <cstring>

#include "bindings/programs/arguments.h"
#include "bindings/tensor_reader.h"
#include "chain/chain.h"

namespace torchyard {

namespace {

constexpr int64_t kMaxSizes = 4;
// Each stage reads three of a product with quantised weights.
constexpr Py_ssize_t kMaxChainWeights = 3 * kMaxChainStages;

// What an input has to be. A stride of -1 is free, and so is every stride of a size of 1.
struct Expected {
  int64_t dtype;  // of TensorDType
  int64_t dim;
  int64_t sizes[kMaxSizes];
  int64_t strides[kMaxSizes];
};

// A program of a stage: its holder is filled once and never moved.
struct Held {
  PyObject* encoded;
  ProgramHolder holder;
};

struct Path {
  Chain chain;
  Expected inputs[kMaxChainInputs];
  int64_t input_count;
  Expected made;
  Held held[kMaxChainStages];
  int held_count;
  PyObject* weights;  // a tuple of the tensors that the stages read at addresses of their own
  const void* places[kMaxChainWeights];  // where they lay when the chain was made

  PyObject* try_call(PyObject* const* argv, Py_ssize_t argc);
  // Every call that fits makes the one request.
  PyObject* enable(PyObject* const*, Py_ssize_t) { Py_RETURN_NONE; }
  void clear() {}
  void end();
};

bool fits(const Expected& expected, const TensorView& view) {
  if (static_cast<int64_t>(view.dtype) != expected.dtype) return false;
  for (int64_t d = 0; d < expected.dim; ++d) {
    if (view.sizes[d] != expected.sizes[d]) return false;
    if (view.sizes[d] != 1 && expected.strides[d] >= 0 && view.strides[d] != expected.strides[d]) {
      return false;
    }
  }
  return true;
}

// Whether the weights lie where they lay; `first` notes where that is. Their storage is checked
// too.
bool weights_lie(Path* chain, bool first) {
  const Py_ssize_t count = PyTuple_Size(chain->weights);
  for (Py_ssize_t i = 0; i < count; ++i) {
    TensorView view;
    // What a product has no use for, such as zeros of symmetric weights, is empty.
    if (!tensor_reader().read_constant(PyTuple_GetItem(chain->weights, i), &view)) return false;
    if (first) chain->places[i] = view.data;
    if (chain->places[i] != view.data) return false;
  }
  return true;
}

bool read_expected(const int64_t* words, Expected* out) {
  std::memcpy(out, words, sizeof(*out));
  if (out->dtype >= 0 && out->dtype < kTensorDTypes && out->dim >= 0 && out->dim <= kMaxSizes) {
    return true;
  }
  PyErr_SetString(PyExc_ValueError, "tensors: expected known dtypes and up to 4 dimensions");
  return false;
}

bool place_fits(const Path& chain, const ChainPlace& place) {
  const bool input = place.base >= 0 && place.base < chain.input_count;
  if (!input && place.base != kChainMade && place.base != kChainMemory) return false;
  if (place.row < 0 && (!input || -1 - place.row >= chain.inputs[place.base].dim)) return false;
  return place.offset >= 0 &&
         (place.base != kChainMemory || place.offset < chain.chain.memory_bytes);
}

// Reads places of a stage from bytes; false with an exception set.
bool read_places(const Path& chain, PyObject* bytes, int64_t least, int64_t most, ChainPlace* out,
                 int64_t* count) {
  const ChainPlace* places;
  if (!read_records(bytes, &places, count)) return false;
  bool fit = *count >= least && *count <= most;
  for (int64_t i = 0; fit && i < *count; ++i) {
    fit = place_fits(chain, places[i]);
    out[i] = places[i];
  }
  if (!fit) PyErr_SetString(PyExc_ValueError, "stage: expected places within inputs and memory");
  return fit;
}

// The places of a product: x, what is written, and perhaps a bias.
bool read_product_places(const Path& chain, PyObject* bytes, ChainStage* out) {
  ChainPlace places[3];
  int64_t count;
  if (!read_places(chain, bytes, 2, 3, places, &count)) return false;
  out->x = places[0];
  out->out = places[1];
  out->biased = count == 3;
  if (out->biased) out->bias = places[2];
  return true;
}

// (0, kernel, places, (columns, depth, element, bits, group, bytes, codes, scales, zeros))
bool read_quantised(const Path& chain, PyObject* tuple, ChainStage* out) {
  int64_t d[9];
  out->quantised = read_kernel(PyTuple_GetItem(tuple, 1), kQuantisedKernels, "quantised_kernels");
  if (out->quantised == nullptr || !read_product_places(chain, PyTuple_GetItem(tuple, 2), out) ||
      !read_integers(PyTuple_GetItem(tuple, 3), "stage", 9, d)) {
    return false;
  }
  if (d[0] < 1 || d[1] < 1 || d[2] < 0 || d[2] > 2 || (d[3] != 8 && d[3] != 4) ||
      (d[4] != 0 && (d[4] < kQuantisedPad || d[4] % 32 != 0 || d[4] > kLongestSegment))) {
    PyErr_SetString(PyExc_ValueError, "stage: expected sizes of a product with quantised weights");
    return false;
  }
  QuantisedArgs& args = out->quantised_args;
  args = {};
  args.rows = 1;
  args.columns = d[0];
  args.depth = d[1];
  args.x_stride = d[1];
  args.element = static_cast<QuantisedElement>(d[2]);
  args.bits = static_cast<int>(d[3]);
  args.group = d[4];
  args.bytes = d[5] != 0;
  args.codes = pointer<const uint8_t>(d[6]);
  args.scales = pointer<const void>(d[7]);
  args.zeros = pointer<const uint8_t>(d[8]);
  args.out_stride = d[0];
  return true;
}

// (1, kernel, places, (columns, depth, panels))
bool read_linear(const Path& chain, PyObject* tuple, ChainStage* out) {
  int64_t d[3];
  out->linear = read_kernel(PyTuple_GetItem(tuple, 1), kLinearKernels, "linear_kernels");
  if (out->linear == nullptr || !read_product_places(chain, PyTuple_GetItem(tuple, 2), out) ||
      !read_integers(PyTuple_GetItem(tuple, 3), "stage", 3, d)) {
    return false;
  }
  if (d[0] < 1 || d[1] < 1) {
    PyErr_SetString(PyExc_ValueError, "stage: expected sizes of at least 1");
    return false;
  }
  LinearArgs& args = out->linear_args;
  args = {};
  args.batches = 1;
  args.rows = 1;
  args.outputs = d[0];
  args.depth = d[1];
  args.x = {nullptr, 0, 0, 1, d[1]};
  args.weight = {pointer<const void>(d[2]), true, 0, 0, 0};
  return true;
}

// (2, columns, places, epsilon)
bool read_scale(const Path& chain, PyObject* tuple, ChainStage* out) {
  ChainPlace places[2];
  int64_t count;
  out->columns = PyLong_AsLongLong(PyTuple_GetItem(tuple, 1));
  out->epsilon = static_cast<float>(PyFloat_AsDouble(PyTuple_GetItem(tuple, 3)));
  if (PyErr_Occurred() != nullptr ||
      !read_places(chain, PyTuple_GetItem(tuple, 2), 2, 2, places, &count)) {
    return false;
  }
  out->x = places[0];
  out->out = places[1];
  return true;
}

// (3, kernel, places, program, rows, columns)
bool read_program_stage(Path* chain, PyObject* tuple, ChainStage* out) {
  int64_t count;
  PyObject* encoded = PyTuple_GetItem(tuple, 3);
  Held& held = chain->held[chain->held_count];
  out->program_kernel = read_kernel(PyTuple_GetItem(tuple, 1), kProgramKernels, "program_kernels");
  out->rows = PyLong_AsLongLong(PyTuple_GetItem(tuple, 4));
  out->columns = PyLong_AsLongLong(PyTuple_GetItem(tuple, 5));
  if (out->program_kernel == nullptr || PyErr_Occurred() != nullptr ||
      !read_program(encoded, &held.holder) ||
      !read_places(*chain, PyTuple_GetItem(tuple, 2), 1, kMaxChainPlaces, out->places, &count)) {
    return false;
  }
  const Program& program = held.holder.program;
  if (count != program.operand_count + program.result_count || out->rows < 1 || out->columns < 1) {
    PyErr_SetString(PyExc_ValueError, "stage: expected a place for each operand and result");
    return false;
  }
  Py_INCREF(encoded);
  held.encoded = encoded;
  ++chain->held_count;
  out->program = &program;
  const int64_t bytes = static_cast<int64_t>(out->program_kernel->bytes(program));
  if (bytes > chain->chain.program_bytes) chain->chain.program_bytes = bytes;
  return true;
}

// (4, rows, places, bytes)
bool read_copy(const Path& chain, PyObject* tuple, ChainStage* out) {
  ChainPlace places[2];
  int64_t count;
  out->rows = PyLong_AsLongLong(PyTuple_GetItem(tuple, 1));
  out->columns = PyLong_AsLongLong(PyTuple_GetItem(tuple, 3));
  if (PyErr_Occurred() != nullptr ||
      !read_places(chain, PyTuple_GetItem(tuple, 2), 2, 2, places, &count)) {
    return false;
  }
  out->x = places[0];
  out->out = places[1];
  if (out->rows >= 1 && out->columns >= 1 && out->x.row >= 0) return true;
  PyErr_SetString(PyExc_ValueError, "stage: expected rows of at least 1 byte");
  return false;
}

bool read_stage(Path* chain, PyObject* tuple, ChainStage* out) {
  constexpr Py_ssize_t kLengths[] = {4, 4, 4, 6, 4};
  const int64_t kind = PyTuple_Check(tuple) && PyTuple_Size(tuple) > 0
                           ? PyLong_AsLongLong(PyTuple_GetItem(tuple, 0))
                           : -1;
  if (PyErr_Occurred() != nullptr) return false;
  if (kind < 0 || kind > 4 || PyTuple_Size(tuple) != kLengths[kind]) {
    PyErr_SetString(PyExc_TypeError, "stage: expected a tuple of a known kind");
    return false;
  }
  out->kind = static_cast<ChainKind>(kind);
  switch (out->kind) {
    case ChainKind::kQuantised:
      return read_quantised(*chain, tuple, out);
    case ChainKind::kLinear:
      return read_linear(*chain, tuple, out);
    case ChainKind::kScale:
      return read_scale(*chain, tuple, out);
    case ChainKind::kProgram:
      return read_program_stage(chain, tuple, out);
    case ChainKind::kCopy:
      return read_copy(*chain, tuple, out);
  }
  return false;
}

// Reads what a chain is; false with an exception set.
bool read_chain(PyObject* const* argv, Path* out) {
  const Expected* tensors;
  int64_t count;
  if (!read_records(argv[0], &tensors, &count)) return false;
  if (count < 2 || count > kMaxChainInputs + 1) {
    PyErr_SetString(PyExc_ValueError, "tensors: expected one to 16 inputs and an output");
    return false;
  }
  out->input_count = count - 1;
  for (int64_t i = 0; i < count; ++i) {
    Expected* place = i == 0 ? &out->made : &out->inputs[i - 1];
    if (!read_expected(reinterpret_cast<const int64_t*>(tensors + i), place)) return false;
  }
  out->chain.memory_bytes = PyLong_AsLongLong(argv[1]);
  if (PyErr_Occurred() != nullptr) return false;
  if (out->chain.memory_bytes < 0 || out->chain.memory_bytes % 64 != 0 || !PyTuple_Check(argv[2]) ||
      PyTuple_Size(argv[2]) < 1 || PyTuple_Size(argv[2]) > kMaxChainStages) {
    PyErr_SetString(PyExc_ValueError, "expected memory of whole lines, and 1 to 16 stages");
    return false;
  }
  out->chain.stage_count = static_cast<int>(PyTuple_Size(argv[2]));
  for (int i = 0; i < out->chain.stage_count; ++i) {
    if (!read_stage(out, PyTuple_GetItem(argv[2], i), &out->chain.stages[i])) return false;
  }
  return true;
}

// try_call(*inputs)
PyObject* Path::try_call(PyObject* const* argv, Py_ssize_t argc) {
  const TensorReader& reader = tensor_reader();
  if (!takes_arguments(input_count, argc)) return nullptr;
  ChainInput given[kMaxChainInputs];
  for (Py_ssize_t i = 0; i < argc; ++i) {
    TensorView view;
    if (!reader.read(argv[i], inputs[i].dim, &view) || !fits(inputs[i], view)) {
      return not_computed();
    }
    given[i] = {static_cast<char*>(view.data), view.strides};
  }
  if (!weights_lie(this, false)) return not_computed();
  NewTensor out;
  if (!reader.make(made.dim, made.sizes, static_cast<TensorDType>(made.dtype), &out)) {
    return without_outputs();
  }
  bool done;
  const int threads = reader.threads();
  Py_BEGIN_ALLOW_THREADS;
  done = run_chain(chain, given, static_cast<char*>(out.data), threads);
  Py_END_ALLOW_THREADS;
  if (done) return out.tensor;
  Py_DECREF(out.tensor);
  return PyErr_NoMemory();
}

void Path::end() {
  for (int i = 0; i < held_count; ++i) Py_DECREF(held[i].encoded);
  Py_DECREF(weights);
}

// chain_fast_path(tensors, memory, stages, weights)
PyObject* chain_fast_path(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 4) {
    PyErr_Format(PyExc_TypeError, "chain_fast_path: expected 4 arguments, got %zd", argc);
    return nullptr;
  }
  if (!PyTuple_Check(argv[3]) || PyTuple_Size(argv[3]) > kMaxChainWeights) {
    PyErr_SetString(PyExc_TypeError, "weights: expected a tuple of at most 48 tensors");
    return nullptr;
  }
  Path* path = allocate_path<Path>();
  if (path == nullptr) return nullptr;
  path->held_count = 0;
  path->weights = Py_NewRef(argv[3]);
  path->chain.program_bytes = 0;
  if (!read_chain(argv, path)) return drop_path(path);
  if (tensor_reader().is_connected() && !weights_lie(path, true)) {
    drop_path(path);
    return not_computed();
  }
  return make_fast_path(path);
}

PyMethodDef functions[] = {path_maker("chain_fast_path", chain_fast_path),
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_chain_fast_path(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace torchyard

// The fast path of foreach_map, see torchyard_cpu/_native.pyi: pointwise_fast_path.
#include "bindings/fast_path.h"

#include <cstring>

#include "bindings/pointwise/layout.h"
#include "bindings/programs/arguments.h"
#include "bindings/tensor_reader.h"
#include "pointwise/pointwise.h"
#include "programs/program.h"

namespace torchyard {

namespace {

// What an input or a captured tensor must be.
struct Kind {
  int64_t dtype;       // of TensorDType; of a plain number 0 float, 1 int, 2 bool
  int64_t dimensions;  // 0; 1 for any more; -1: a plain number
};

// One program, and what its operands must be.
struct Map {
  const ProgramKernel* kernel;
  ProgramHolder holder;
  PyObject* program;  // what the holder's steps lie in
  Kind kinds[kMaxProgramPlaces];
  int64_t inputs;
  TensorDType dtypes[kMaxProgramPlaces];  // of the results
  bool in_place;
};

// float64 holds every integer up to here.
constexpr int64_t kMostNumber = int64_t{1} << 53;

// One call's working memory.
struct Call {
  int64_t groups;
  int64_t* sizes;
  ProgramPlace* places;
  int64_t* numbers;
  int64_t used;
};

// The item of a group: of a list its own, of anything else the thing itself. Borrowed; null where
// the list is of another length.
PyObject* item_of(PyObject* given, int64_t group, int64_t groups) {
  if (PyList_Check(given)) {
    return PyList_Size(given) == groups ? PyList_GetItem(given, group) : nullptr;
  }
  if (PyTuple_Check(given)) {
    return PyTuple_Size(given) == groups ? PyTuple_GetItem(given, group) : nullptr;
  }
  return given;
}

bool is_list(PyObject* given) { return PyList_Check(given) || PyTuple_Check(given); }

// Stores a plain number where an operand will be read; false where it is of another kind.
bool hold_number(PyObject* number, int64_t dtype, Call* call, ProgramPlace* out) {
  int64_t* at = call->numbers + call->used++;
  if (dtype == 0) {
    if (!PyFloat_Check(number)) return false;
    const float value = static_cast<float>(PyFloat_AsDouble(number));
    std::memcpy(at, &value, sizeof(value));
  } else if (dtype == 1) {
    if (!PyLong_Check(number) || PyBool_Check(number)) return false;
    int overflow = 0;
    *at = PyLong_AsLongLongAndOverflow(number, &overflow);
    // Others are refused, since an op has float64 for them.
    if (overflow != 0 || *at > kMostNumber || *at < -kMostNumber) return false;
  } else {
    if (!PyBool_Check(number)) return false;
    const uint8_t value = number == Py_True;
    std::memcpy(at, &value, sizeof(value));
  }
  *out = {reinterpret_cast<char*>(at), 0, 0};
  return true;
}

// Reads one group; false, perhaps with an exception set, where it does not fit. New results are
// added to `made`.
bool read_group(const Map& map, PyObject* lists, PyObject* captured, PyObject* out, int64_t g,
                Call* call, PyObject** made) {
  const Program& program = map.holder.program;
  ProgramPlace* places = call->places + g * (program.operand_count + program.result_count);
  Group group;
  group.count = 0;
  int64_t dim = 0;
  int64_t shape[kMaxTensorDim] = {};
  for (int64_t i = 0; i < program.operand_count; ++i) {
    PyObject* item = i < map.inputs
                         ? item_of(PyTuple_GetItem(lists, i), g, call->groups)
                         : item_of(PyTuple_GetItem(captured, i - map.inputs), g, call->groups);
    const Kind& kind = map.kinds[i];
    if (item == nullptr) return false;
    if (kind.dimensions < 0) {
      if (!hold_number(item, kind.dtype, call, places + i)) return false;
      continue;
    }
    TensorView& view = group.views[group.count];
    if (!tensor_reader().read(item, &view) || static_cast<int64_t>(view.dtype) != kind.dtype ||
        (view.dim > 0) != (kind.dimensions > 0)) {
      return false;
    }
    group.place[group.count] = i;
    if (view.dim == 0) {
      places[i] = {static_cast<char*>(view.data), 0, 0};
      continue;
    }
    if (!broaden(view, &dim, shape)) return false;
    ++group.count;
  }
  int64_t strides[kMaxTensorDim];
  if (!map.in_place) contiguous_strides(dim, shape, strides);
  for (int64_t r = 0; r < program.result_count; ++r) {
    TensorView& view = group.views[group.count];
    group.place[group.count++] = program.operand_count + r;
    if (!map.in_place) {
      NewTensor result;
      if (!tensor_reader().make(dim, shape, map.dtypes[r], &result)) {
        PyErr_Clear();
        return false;
      }
      view = {shape, strides, result.data, map.dtypes[r], dim};
      if (PyList_SetItem(made[r], g, result.tensor) != 0 || result.data == nullptr) return false;
      continue;
    }
    PyObject* item = item_of(PyTuple_GetItem(out, r), g, call->groups);
    if (item == nullptr || !tensor_reader().read(item, &view) || view.dtype != map.dtypes[r] ||
        view.dim != dim) {
      return false;
    }
    for (int64_t d = 0; d < dim; ++d) {
      // Nor may one place be written to as several elements.
      if (view.sizes[d] != shape[d] || (view.strides[d] == 0 && shape[d] > 1)) return false;
    }
  }
  const TensorView& leading = group.views[group.count - 1];
  bool alike = is_dense(leading);
  for (int64_t t = 0; alike && t + 1 < group.count; ++t)
    alike = same_layout(group.views[t], leading);
  int64_t* sizes = call->sizes + 2 * g;
  if (!alike) return lay_out(group, dim, shape, sizes, places);
  sizes[0] = 1;
  sizes[1] = 1;
  for (int64_t d = 0; d < dim; ++d) sizes[1] *= shape[d];
  for (int64_t t = 0; t < group.count; ++t) {
    places[group.place[t]] = {static_cast<char*>(group.views[t].data), 0, 1};
  }
  return true;
}

// Whether the arguments are as many as the map takes; counts the groups.
bool count_groups(const Map& map, PyObject* lists, PyObject* captured, PyObject* out,
                  int64_t* groups) {
  const Program& program = map.holder.program;
  if (!PyTuple_Check(lists) || PyTuple_Size(lists) != map.inputs || !PyTuple_Check(captured) ||
      PyTuple_Size(captured) != program.operand_count - map.inputs ||
      map.in_place != (out != Py_None)) {
    return false;
  }
  if (map.in_place && (!PyTuple_Check(out) || PyTuple_Size(out) != program.result_count)) {
    return false;
  }
  *groups = -1;
  for (int64_t i = 0; i < map.inputs && *groups < 0; ++i) {
    PyObject* given = PyTuple_GetItem(lists, i);
    if (is_list(given)) *groups = PyList_Check(given) ? PyList_Size(given) : PyTuple_Size(given);
  }
  for (int64_t r = 0; map.in_place && r < program.result_count; ++r) {
    if (!is_list(PyTuple_GetItem(out, r))) return false;
  }
  return *groups > 0;
}

// Returns a tuple with tuples in place of lists, which another thread may change while the kernel
// reads what is in them; None for None. Null with an exception set.
PyObject* hold(PyObject* given) {
  if (!PyTuple_Check(given)) return Py_NewRef(given);
  const Py_ssize_t count = PyTuple_Size(given);
  PyObject* held = PyTuple_New(count);
  for (Py_ssize_t i = 0; held != nullptr && i < count; ++i) {
    PyObject* item = PyTuple_GetItem(given, i);
    PyObject* copy = PyList_Check(item) ? PyList_AsTuple(item) : Py_NewRef(item);
    if (copy == nullptr || PyTuple_SetItem(held, i, copy) != 0) Py_CLEAR(held);
  }
  return held;
}

// Computes a call; None where it does not fit.
PyObject* compute(const Map& map, PyObject* lists, PyObject* captured, PyObject* out) {
  const Program& program = map.holder.program;
  Call call;
  if (!count_groups(map, lists, captured, out, &call.groups)) Py_RETURN_NONE;
  const int64_t per_group = program.operand_count + program.result_count;
  const size_t bytes = static_cast<size_t>(call.groups) *
                       (16 + static_cast<size_t>(per_group) * (sizeof(ProgramPlace) + 8));
  char* memory = static_cast<char*>(PyMem_Malloc(bytes));
  if (memory == nullptr) return PyErr_NoMemory();
  call.places = reinterpret_cast<ProgramPlace*>(memory);
  call.sizes = reinterpret_cast<int64_t*>(call.places + call.groups * per_group);
  call.numbers = call.sizes + 2 * call.groups;
  call.used = 0;
  PyObject* results = map.in_place ? nullptr : PyTuple_New(program.result_count);
  bool fits = map.in_place || results != nullptr;
  PyObject* made[kMaxProgramPlaces];
  for (int64_t r = 0; fits && !map.in_place && r < program.result_count; ++r) {
    made[r] = PyList_New(call.groups);
    fits = made[r] != nullptr && PyTuple_SetItem(results, r, made[r]) == 0;
  }
  for (int64_t g = 0; fits && g < call.groups; ++g) {
    fits = read_group(map, lists, captured, out, g, &call, made);
  }
  bool done = true;
  if (fits) {
    const int threads = tensor_reader().threads();
    const PointwiseArgs args = {&program, call.groups, call.sizes, call.places};
    Py_BEGIN_ALLOW_THREADS;
    done = pointwise(args, *map.kernel, threads);
    Py_END_ALLOW_THREADS;
  }
  PyMem_Free(memory);
  if (fits && done) {
    if (!map.in_place) return results;
    Py_RETURN_TRUE;
  }
  Py_XDECREF(results);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (!done) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

struct Path {
  Map map;

  // try_call(lists, captured, out)
  PyObject* try_call(PyObject* const* argv, Py_ssize_t argc) {
    if (!takes_arguments(3, argc)) return nullptr;
    PyObject* lists = hold(argv[0]);
    PyObject* out = hold(argv[2]);
    PyObject* results =
        lists == nullptr || out == nullptr ? nullptr : compute(map, lists, argv[1], out);
    Py_XDECREF(lists);
    Py_XDECREF(out);
    return results;
  }

  // Every call of the map's kinds makes the one request.
  PyObject* enable(PyObject* const*, Py_ssize_t) { Py_RETURN_NONE; }
  void clear() {}
  void end() { Py_XDECREF(map.program); }
};

// pointwise_fast_path(kernel, program, kinds, captured, dtypes, in place)
PyObject* pointwise_fast_path(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 6) {
    PyErr_Format(PyExc_TypeError, "pointwise_fast_path: expected 6 arguments, got %zd", argc);
    return nullptr;
  }
  Path* path = allocate_path<Path>();
  if (path == nullptr) return nullptr;
  Map& map = path->map;
  map.program = Py_NewRef(argv[1]);
  map.kernel = read_kernel(argv[0], kProgramKernels, "program_kernels");
  map.in_place = argv[5] == Py_True;
  const Kind* kinds;
  const int64_t* dtypes;
  int64_t kind_count, dtype_count;
  const int64_t captured = PyLong_AsLongLong(argv[3]);
  if (map.kernel == nullptr || PyErr_Occurred() != nullptr || !read_program(argv[1], &map.holder) ||
      !read_records(argv[2], &kinds, &kind_count) ||
      !read_records(argv[4], &dtypes, &dtype_count)) {
    return drop_path(path);
  }
  const Program& program = map.holder.program;
  if (kind_count != program.operand_count || dtype_count != program.result_count || captured < 0 ||
      captured > kind_count) {
    PyErr_SetString(PyExc_ValueError, "kinds: expected one per operand, and a dtype per result");
    return drop_path(path);
  }
  for (int64_t i = 0; i < dtype_count; ++i) {
    if (dtypes[i] < 0 || dtypes[i] >= kTensorDTypes) {
      PyErr_SetString(PyExc_ValueError, "dtypes: expected those of tensors");
      return drop_path(path);
    }
    map.dtypes[i] = static_cast<TensorDType>(dtypes[i]);
  }
  std::memcpy(map.kinds, kinds, static_cast<size_t>(kind_count) * sizeof(Kind));
  map.inputs = kind_count - captured;
  return make_fast_path(path);
}

PyMethodDef functions[] = {path_maker("pointwise_fast_path", pointwise_fast_path),
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_pointwise_fast_path(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace torchyard

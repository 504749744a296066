// The fast path of linear with functions, see torchyard_cpu/_native.pyi: fused_linear_fast_path.
#include "bindings/fast_path.h"

#include "bindings/linear/views.h"
#include "bindings/programs/arguments.h"
#include "programs/program.h"

namespace torchyard {

namespace {

// Over what a captured tensor is spread: torchyard_kernels.linear.contract.Spread, in its order.
enum Spread : int64_t { kScalar, kOne, kRow, kColumn, kFull };

struct Kind {
  int64_t dtype;  // of TensorDType
  int64_t spread;
};

// A function before or after the product; without a program there is none.
struct Fused {
  PyObject* program;  // what the holder's steps lie in
  ProgramHolder holder;
  int64_t inputs;
  int64_t captured;
  Kind kinds[kMaxProgramPlaces];
};

// Gives the strides of a tensor that broadcasts to the rows of x and some columns; false where its
// shape does not fit, where its rows are not at one stride, or where it broadcasts in another way.
bool place_of(const TensorView& view, const TensorView& x, int64_t columns, int64_t spread,
              ProgramPlace* out) {
  *out = {static_cast<char*>(view.data), 0, 0};
  if (view.dim > x.dim) return false;
  if (view.dim == 0) return spread == kScalar;
  const int64_t last = view.sizes[view.dim - 1];
  if (last != 1 && last != columns) return false;
  bool rows = false;
  int64_t step = -1;  // from the rows so far to the next
  for (int64_t d = x.dim - 2; d >= 0; --d) {
    const int64_t own = d - (x.dim - view.dim);
    const int64_t size = own < 0 ? 1 : view.sizes[own];
    if (size != 1 && size != x.sizes[d]) return false;
    if (x.sizes[d] == 1) continue;
    const int64_t stride = size == 1 ? 0 : view.strides[own];
    if (size != 1) rows = true;
    if (step < 0) {
      out->row = stride;
    } else if (stride != step) {
      return false;
    }
    step = stride * x.sizes[d];
  }
  if (last != 1) out->column = view.strides[view.dim - 1];
  return spread == (rows ? last != 1 ? kFull : kRow : last != 1 ? kColumn : kOne);
}

// Reads what a function captured; false, perhaps with an exception set, where it does not fit.
bool read_captured(const ProgramKernel* programs, const Fused& fused, PyObject* captured,
                   const TensorView& x, int64_t columns, LinearFunction* out) {
  if (!PyTuple_Check(captured) || PyTuple_Size(captured) != fused.captured) return false;
  for (int64_t i = 0; i < fused.captured; ++i) {
    TensorView view;
    if (!tensor_reader().read(PyTuple_GetItem(captured, i), &view) ||
        static_cast<int64_t>(view.dtype) != fused.kinds[i].dtype ||
        !place_of(view, x, columns, fused.kinds[i].spread, &out->places[fused.inputs + i])) {
      return false;
    }
  }
  out->kernel = programs;
  out->program = &fused.holder.program;
  out->inputs = static_cast<int>(fused.inputs);
  return true;
}

struct Path {
  const LinearKernel* kernel;
  const ProgramKernel* programs;
  int64_t dtype;  // of DType
  TensorDType result;
  Fused before, after;
  RequestCache<LinearKey> requests;

  // try_call(x, weight, form, bias, captured before, captured after)
  PyObject* try_call(PyObject* const* argv, Py_ssize_t argc) {
    if (!takes_arguments(6, argc)) return nullptr;
    LinearView call;
    LinearFunction first, last;
    bool computes = read_linear(argv[0], argv[1], argv[2], argv[3], &call) && call.dtype == dtype &&
                    requests.contains(call.key);
    if (computes && before.program != nullptr) {
      call.args.prologue = &first;
      computes = read_captured(programs, before, argv[4], call.x, call.args.depth, &first);
    }
    if (computes && after.program != nullptr) {
      last.inputs = static_cast<int>(after.inputs);
      call.args.epilogue = &last;
      const int64_t columns = call.args.columns();
      computes = call.args.outputs % last.inputs == 0 &&
                 !(call.args.weight.packed && last.inputs == 2 && columns % kPanelColumns != 0) &&
                 read_captured(programs, after, argv[5], call.x, columns, &last);
    }
    return computes ? run_linear(*kernel, result, &call) : not_computed();
  }

  PyObject* enable(PyObject* const* argv, Py_ssize_t argc) {
    return enable_request(&requests, argv, argc, kLinearDTypes);
  }

  void clear() { requests.clear(); }

  void end() {
    Py_XDECREF(before.program);
    Py_XDECREF(after.program);
  }
};

// `tuple` is (program, inputs, kinds), kinds a dtype and a spread of each captured tensor; or None.
bool read_fused(PyObject* tuple, int64_t most_inputs, Fused* out) {
  if (tuple == Py_None) return true;
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 3) {
    PyErr_SetString(PyExc_TypeError, "function: expected a tuple of 3");
    return false;
  }
  PyObject* program = PyTuple_GetItem(tuple, 0);
  const Kind* kinds;
  out->inputs = PyLong_AsLongLong(PyTuple_GetItem(tuple, 1));
  if ((out->inputs == -1 && PyErr_Occurred() != nullptr) || !read_program(program, &out->holder) ||
      !read_records(PyTuple_GetItem(tuple, 2), &kinds, &out->captured)) {
    return false;
  }
  const Program& read = out->holder.program;
  bool fits = out->inputs >= 1 && out->inputs <= most_inputs && read.result_count == 1 &&
              read.operand_count == out->inputs + out->captured;
  for (int64_t i = 0; fits && i < out->captured; ++i) {
    fits = kinds[i].dtype >= 0 && kinds[i].dtype < kTensorDTypes && kinds[i].spread >= kScalar &&
           kinds[i].spread <= kFull;
    out->kinds[i] = kinds[i];
  }
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "function: expected a kind of each captured tensor");
    return false;
  }
  Py_INCREF(program);
  out->program = program;
  return true;
}

// fused_linear_fast_path(kernels, programs, dtype, result, before, after)
PyObject* fused_linear_fast_path(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 6) {
    PyErr_Format(PyExc_TypeError, "fused_linear_fast_path: expected 6 arguments, got %zd", argc);
    return nullptr;
  }
  const LinearKernel* kernels[kLinearDTypes];
  if (!read_linear_kernels(argv[0], kernels)) return nullptr;
  const ProgramKernel* programs = read_kernel(argv[1], kProgramKernels, "program_kernels");
  const int64_t dtype = PyLong_AsLongLong(argv[2]);
  const int64_t result = PyLong_AsLongLong(argv[3]);
  if (programs == nullptr || PyErr_Occurred() != nullptr) return nullptr;
  if (dtype < 0 || dtype >= kLinearDTypes || result < 0 || result >= kTensorDTypes) {
    PyErr_SetString(PyExc_ValueError, "dtype, result: expected those of tensors");
    return nullptr;
  }
  Path* path = allocate_path<Path>();
  if (path == nullptr) return nullptr;
  path->kernel = kernels[dtype];
  path->programs = programs;
  path->dtype = dtype;
  path->result = static_cast<TensorDType>(result);
  path->before.program = nullptr;
  path->after.program = nullptr;
  if (!read_fused(argv[4], 1, &path->before) || !read_fused(argv[5], 2, &path->after)) {
    return drop_path(path);
  }
  return make_fast_path(path);
}

PyMethodDef functions[] = {path_maker("fused_linear_fast_path", fused_linear_fast_path),
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_linear_fused_fast_path(PyObject* module) {
  return PyModule_AddFunctions(module, functions);
}

}  // namespace torchyard

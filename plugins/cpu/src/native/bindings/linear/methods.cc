// linear_forward and the table of its kernels. Signatures are in torchyard_cpu/_native.pyi.
#define PY_SSIZE_T_CLEAN
#include "bindings/linear/methods.h"

#include "bindings/arguments.h"
#include "bindings/programs/arguments.h"
#include "bindings/tables.h"
#include "linear/linear.h"
#include "programs/program.h"

namespace torchyard {
namespace {

// `tuple` is (batches, rows, outputs, depth).
bool read_sizes(PyObject* tuple, LinearArgs* out) {
  int64_t s[4];
  if (!read_integers(tuple, "sizes", 4, s)) return false;
  for (const int64_t size : s) {
    if (size < 0) {
      PyErr_SetString(PyExc_ValueError, "sizes: expected sizes of at least 0");
      return false;
    }
  }
  out->batches = s[0];
  out->rows = s[1];
  out->outputs = s[2];
  out->depth = s[3];
  return true;
}

// `tuple` is (address, batch, outer, inner, row).
bool read_rows(PyObject* tuple, LinearRows* out) {
  int64_t x[5];
  if (!read_integers(tuple, "x", 5, x)) return false;
  if (x[3] < 1) {
    PyErr_Format(PyExc_ValueError, "x: expected at least 1 inner row, got %lld",
                 static_cast<long long>(x[3]));
    return false;
  }
  *out = {pointer<const void>(x[0]), x[1], x[2], x[3], x[4]};
  return true;
}

// `tuple` is (address, packed, batch, row, column).
bool read_weight(PyObject* tuple, LinearWeight* out) {
  int64_t w[5];
  if (!read_integers(tuple, "weight", 5, w)) return false;
  *out = {pointer<const void>(w[0]), w[1] != 0, w[2], w[3], w[4]};
  if (!out->packed && out->row != 1 && out->column != 1) {
    PyErr_Format(PyExc_ValueError, "weight: expected a stride of 1, got %lld and %lld",
                 static_cast<long long>(out->row), static_cast<long long>(out->column));
    return false;
  }
  return true;
}

// `tuple` is (kernel, program, inputs, places), places three integers for each captured operand;
// None gives nullptr. The program stays borrowed.
bool read_function(PyObject* tuple, const char* what, ProgramHolder* holder, LinearFunction* room,
                   const LinearFunction** out) {
  *out = nullptr;
  if (tuple == Py_None) return true;
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 4) {
    PyErr_Format(PyExc_TypeError, "%s: expected a tuple of 4", what);
    return false;
  }
  room->kernel = read_kernel(PyTuple_GetItem(tuple, 0), kProgramKernels, "program_kernels");
  if (room->kernel == nullptr || !read_program(PyTuple_GetItem(tuple, 1), holder)) return false;
  room->program = &holder->program;
  const long inputs = PyLong_AsLong(PyTuple_GetItem(tuple, 2));
  if (inputs == -1 && PyErr_Occurred() != nullptr) return false;
  const int64_t captured = holder->program.operand_count - inputs;
  int64_t places[3 * kMaxProgramPlaces];
  if (inputs < 1 || inputs > 2 || captured < 0 || holder->program.result_count != 1) {
    PyErr_Format(PyExc_ValueError, "%s: expected a program of 1 or 2 inputs and 1 result", what);
    return false;
  }
  if (!read_integers(PyTuple_GetItem(tuple, 3), what, 3 * captured, places)) return false;
  room->inputs = static_cast<int>(inputs);
  for (int64_t i = 0; i < captured; ++i) {
    room->places[inputs + i] = {pointer<char>(places[3 * i]), places[3 * i + 1], places[3 * i + 2]};
  }
  *out = room;
  return true;
}

PyObject* linear_forward(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 10) {
    return PyErr_Format(PyExc_TypeError, "linear_forward: expected 10 arguments, got %zd", argc);
  }
  const LinearKernel* kernel = read_kernel(argv[0], kLinearKernels, "linear_kernels");
  if (kernel == nullptr) return nullptr;
  LinearArgs args;
  LinearFunction functions[2];
  ProgramHolder holders[2];
  float* bias;
  float* out;
  int threads;
  if (!read_sizes(argv[1], &args) || !read_rows(argv[2], &args.x) ||
      !read_weight(argv[3], &args.weight) || !read_address(argv[4], &bias) ||
      !read_address(argv[5], &out) ||
      !read_function(argv[6], "prologue", &holders[0], &functions[0], &args.prologue) ||
      !read_function(argv[7], "epilogue", &holders[1], &functions[1], &args.epilogue) ||
      !read_threads(argv[8], &threads)) {
    return nullptr;
  }
  if ((args.prologue != nullptr && args.prologue->inputs != 1) ||
      args.outputs % args.halves() != 0) {
    PyErr_SetString(PyExc_ValueError, "expected a prologue of 1 input, and halves of even outputs");
    return nullptr;
  }
  if (args.weight.packed && args.columns() % kPanelColumns != 0 && args.halves() == 2) {
    PyErr_Format(PyExc_ValueError, "outputs: expected halves of whole panels of %d", kPanelColumns);
    return nullptr;
  }
  const int poison = PyObject_IsTrue(argv[9]);
  if (poison < 0) return nullptr;
  args.bias = bias;
  args.out = out;
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = linear(args, *kernel, threads, poison != 0);
  Py_END_ALLOW_THREADS;
  if (status == Status::kOutOfMemory) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

PyObject* select_linear_kernel(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  return select_name("select_linear", argv, argc, kLinearKernels);
}

PyObject* linear_kernels(PyObject*, PyObject*) { return kernel_table(kLinearKernels); }

PyMethodDef linear_methods[] = {
    {"linear_forward", erased(linear_forward), METH_FASTCALL,
     "Run a linear kernel on raw addresses."},
    {"select_linear", erased(select_linear_kernel), METH_FASTCALL,
     "Return the name of the linear kernel for a dtype and a feature set."},
    {"linear_kernels", linear_kernels, METH_NOARGS,
     "Return (name, dtype, isa, required features) of each linear kernel."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_linear(PyObject* module) { return PyModule_AddFunctions(module, linear_methods); }

}  // namespace torchyard

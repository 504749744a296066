#include "bindings/programs/methods.h"

#include "bindings/arguments.h"
#include "bindings/programs/arguments.h"
#include "pointwise/pointwise.h"
#include "programs/program.h"

namespace torchyard {

namespace {

PyObject* program_kernels(PyObject*, PyObject*) {
  PyObject* rows = PyTuple_New(static_cast<Py_ssize_t>(kProgramKernels.size()));
  if (rows == nullptr) return nullptr;
  for (size_t i = 0; i < kProgramKernels.size(); ++i) {
    PyObject* row = Py_BuildValue("(ss)", kProgramKernels[i].name, kProgramKernels[i].isa);
    if (row == nullptr || PyTuple_SetItem(rows, static_cast<Py_ssize_t>(i), row) != 0) {
      Py_DECREF(rows);
      return nullptr;
    }
  }
  return rows;
}

// select_program(features)
PyObject* select_program_kernel(PyObject*, PyObject* names) {
  FeatureSet features = 0;
  if (!read_features(names, &features)) return nullptr;
  return PyUnicode_FromString(kProgramKernels.select(features)->name);
}

// pointwise(kernel, program, sizes, places, threads)
PyObject* pointwise_call(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 5) {
    PyErr_Format(PyExc_TypeError, "pointwise: expected 5 arguments, got %zd", argc);
    return nullptr;
  }
  const ProgramKernel* kernel = read_kernel(argv[0], kProgramKernels, "program_kernels");
  if (kernel == nullptr) return nullptr;
  ProgramHolder holder;
  const int64_t* sizes;
  int64_t words;
  int64_t place_count;
  int threads;
  PointwiseArgs args;
  if (!read_program(argv[1], &holder) || !read_records(argv[2], &sizes, &words) ||
      !read_records(argv[3], &args.places, &place_count) || !read_threads(argv[4], &threads)) {
    return nullptr;
  }
  args.program = &holder.program;
  args.groups = words / 2;
  args.sizes = sizes;
  bool fits =
      place_count == args.groups * (holder.program.operand_count + holder.program.result_count);
  for (int64_t i = 0; i < words; ++i) fits = fits && sizes[i] >= 0;
  if (!fits) {
    PyErr_SetString(PyExc_ValueError,
                    "places: expected those of all operands and results, of "
                    "groups with sizes of at least 0");
    return nullptr;
  }
  bool done;
  Py_BEGIN_ALLOW_THREADS;
  done = pointwise(args, *kernel, threads);
  Py_END_ALLOW_THREADS;
  if (!done) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"program_kernels", program_kernels, METH_NOARGS,
     "Return (name, isa) of each interpreter of programs."},
    {"select_program", select_program_kernel, METH_O,
     "Return the name of the best interpreter for some features."},
    {"pointwise", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(pointwise_call)),
     METH_FASTCALL, "Run a program over groups of rectangles at raw addresses."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_programs(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace torchyard

// linear_forward and the table of its kernels. Signatures are in torchyard_cpu/_native.pyi.
#define PY_SSIZE_T_CLEAN
#include "python/linear_methods.h"

#include "linear/dispatch.h"
#include "python/arguments.h"
#include "python/tables.h"

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

PyObject* linear_forward(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 8) {
    return PyErr_Format(PyExc_TypeError, "linear_forward: expected 8 arguments, got %zd", argc);
  }
  const LinearKernel* kernel = read_kernel(argv[0], find_linear, "linear_kernels");
  if (kernel == nullptr) return nullptr;
  LinearArgs args;
  float* bias;
  float* out;
  int threads;
  if (!read_sizes(argv[1], &args) || !read_rows(argv[2], &args.x) ||
      !read_weight(argv[3], &args.weight) || !read_address(argv[4], &bias) ||
      !read_address(argv[5], &out) || !read_threads(argv[6], &threads)) {
    return nullptr;
  }
  const int poison = PyObject_IsTrue(argv[7]);
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
  return select_name("select_linear", argv, argc, select_linear);
}

PyObject* linear_kernels(PyObject*, PyObject*) {
  return kernel_table(kLinearKernels, kLinearKernelCount);
}

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

int add_linear(PyObject* module) {
  if (PyModule_AddFunctions(module, linear_methods) != 0) return -1;
  return add_linear_direct(module);
}

}  // namespace torchyard

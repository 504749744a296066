// Products with quantised weights, as functions of the module: integers in, no tensor type.
#include "bindings/quantised/methods.h"

#include "bindings/arguments.h"
#include "bindings/quantised/sizes.h"
#include "quantised/quantised.h"

namespace torchyard {
namespace {

// quantised_linear(kernel, sizes, x, (codes, scales, zeros, bias), out, threads)
PyObject* quantised_linear_method(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 6) {
    return PyErr_Format(PyExc_TypeError, "quantised_linear: expected 6 arguments, got %zd", argc);
  }
  const QuantisedKernel* kernel = read_kernel(argv[0], kQuantisedKernels, "quantised_kernels");
  QuantisedArgs args;
  int64_t x[2], weight[4], out[2];
  int threads;
  if (kernel == nullptr || !read_quantised_sizes(argv[1], &args) ||
      !read_integers(argv[2], "x", 2, x) || !read_integers(argv[3], "weight", 4, weight) ||
      !read_integers(argv[4], "out", 2, out) || !read_threads(argv[5], &threads)) {
    return nullptr;
  }
  args.x = pointer<const void>(x[0]);
  args.x_stride = x[1];
  args.codes = pointer<const uint8_t>(weight[0]);
  args.scales = pointer<const void>(weight[1]);
  args.zeros = pointer<const uint8_t>(weight[2]);
  args.bias = pointer<const void>(weight[3]);
  args.out = pointer<void>(out[0]);
  args.out_stride = out[1];
  bool done;
  Py_BEGIN_ALLOW_THREADS;
  done = quantised_linear(args, *kernel, threads);
  Py_END_ALLOW_THREADS;
  if (!done) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

// select_quantised(features)
PyObject* select_quantised_method(PyObject*, PyObject* names) {
  FeatureSet features = 0;
  if (!read_features(names, &features)) return nullptr;
  return PyUnicode_FromString(kQuantisedKernels.select(features)->name);
}

PyObject* quantised_kernels(PyObject*, PyObject*) {
  const Py_ssize_t count = static_cast<Py_ssize_t>(kQuantisedKernels.size());
  PyObject* names = PyTuple_New(count);
  if (names == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const QuantisedKernel& kernel = kQuantisedKernels[static_cast<size_t>(i)];
    PyObject* row = Py_BuildValue("(ssO)", kernel.name, kernel.isa,
                                  (kernel.required & ~detect_features()) == 0 ? Py_True : Py_False);
    if (row == nullptr || PyTuple_SetItem(names, i, row) != 0) {
      Py_DECREF(names);
      return nullptr;
    }
  }
  return names;
}

template <class Function>
PyCFunction erased(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"quantised_linear", erased(quantised_linear_method), METH_FASTCALL,
     "Multiply by a quantised weight, on raw addresses."},
    {"select_quantised", select_quantised_method, METH_O,
     "Return the name of the kernel of quantised weights for a feature set."},
    {"quantised_kernels", quantised_kernels, METH_NOARGS,
     "Return (name, isa, whether this processor runs it) of each kernel of quantised weights."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_quantised(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace torchyard

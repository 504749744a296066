// The fast path of linear, matmul and bmm, see torchyard_cpu/_native.pyi: linear_fast_path.
#include "bindings/fast_path.h"

#include "bindings/linear/views.h"

namespace torchyard {

namespace {

struct Path {
  const LinearKernel* kernels[kLinearDTypes];  // in DType's order
  RequestCache<LinearKey> requests;

  // try_call(x, weight, form, bias)
  PyObject* try_call(PyObject* const* argv, Py_ssize_t argc) {
    if (!takes_arguments(4, argc)) return nullptr;
    LinearView call;
    if (!read_linear(argv[0], argv[1], argv[2], argv[3], &call) || !requests.contains(call.key)) {
      return not_computed();
    }
    return run_linear(*kernels[call.dtype], call.x.dtype, &call);
  }

  PyObject* enable(PyObject* const* argv, Py_ssize_t argc) {
    return enable_request(&requests, argv, argc, kLinearDTypes);
  }

  void clear() { requests.clear(); }
  void end() {}
};

// linear_fast_path(kernels)
PyObject* linear_fast_path(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 1) {
    PyErr_Format(PyExc_TypeError, "linear_fast_path: expected 1 argument, got %zd", argc);
    return nullptr;
  }
  Path* path = allocate_path<Path>();
  if (path == nullptr) return nullptr;
  if (!read_linear_kernels(argv[0], path->kernels)) return drop_path(path);
  return make_fast_path(path);
}

PyMethodDef functions[] = {path_maker("linear_fast_path", linear_fast_path),
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_linear_fast_path(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace torchyard

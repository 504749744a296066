// linear's calls that are served without Python's help: see torchyard_cpu/_native.pyi,
// DirectLinear.
#include <cstring>
#include <new>

#include "bindings/direct.h"
#include "bindings/direct_type.h"
#include "bindings/linear/seen.h"

namespace torchyard {

namespace {

struct DirectLinear {
  PyObject_HEAD;
  Torch torch;
  const LinearKernel* kernels[kLinearDTypes];  // in DType's order
  Admitted<LinearAsked> admitted;
};

// serve(x, weight, form, bias)
PyObject* serve(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 4) {
    PyErr_Format(PyExc_TypeError, "serve: expected 4 arguments, got %zd", argc);
    return nullptr;
  }
  const DirectLinear& direct = *reinterpret_cast<DirectLinear*>(self);
  const Torch& torch = direct.torch;
  SeenLinear call;
  if (!see_linear(torch, argv[0], argv[1], argv[2], argv[3], &call) ||
      !direct.admitted.holds(call.asked)) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    Py_RETURN_NONE;
  }
  void* out = make_linear(torch, call, call.x.dtype, &call.args.out);
  if (out == nullptr) Py_RETURN_NONE;
  return give_linear(torch, *direct.kernels[call.dtype], call.args, out);
}

PyObject* admit(PyObject* self, PyObject* tuple) {
  return admit_request<DirectLinear, LinearAsked>(self, tuple, kLinearDTypes);
}

PyMethodDef methods[] = {
    {"serve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(serve)), METH_FASTCALL,
     "Compute a call whose request was admitted; None for any other."},
    {"admit", admit, METH_O, "Serve calls that make this request from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(end_direct<DirectLinear>)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"torchyard_cpu._native.DirectLinear", sizeof(DirectLinear), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyTypeObject* type;

// direct_linear(kernels, probe, handle, tensor type, parameter type, wrap, takes)
PyObject* direct_linear(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 7) {
    PyErr_Format(PyExc_TypeError, "direct_linear: expected 7 arguments, got %zd", argc);
    return nullptr;
  }
  const LinearKernel* kernels[kLinearDTypes];
  if (!read_linear_kernels(argv[0], kernels)) return nullptr;
  DirectLinear* direct = PyObject_New(DirectLinear, type);
  if (direct == nullptr) return nullptr;
  new (&direct->torch) Torch();
  new (&direct->admitted) Admitted<LinearAsked>();
  std::memcpy(direct->kernels, kernels, sizeof(kernels));
  if (direct->torch.connect(argv[1], argv[2], argv[3], argv[4], argv[5], argv[6] == Py_True)) {
    return reinterpret_cast<PyObject*>(direct);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(direct));
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"direct_linear", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(direct_linear)),
     METH_FASTCALL, "Return a DirectLinear, or None where torch lacks what it needs."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_linear_direct(PyObject* module) {
  return add_direct_type(module, &spec, "DirectLinear", functions, &type);
}

}  // namespace torchyard

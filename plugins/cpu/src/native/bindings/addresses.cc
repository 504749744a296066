// Addresses of tensors, checked against their storage: see torchyard_cpu/_native.pyi, Addresses.
#include <new>

#include "bindings/direct.h"
#include "bindings/direct_type.h"
#include "bindings/torch_tensors.h"

namespace torchyard {

namespace {

struct Addresses {
  PyObject_HEAD;
  Torch torch;
};

// of(tensor, name, bytes)
PyObject* address_of(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 2 && argc != 3) {
    PyErr_Format(PyExc_TypeError, "of: expected 2 or 3 arguments, got %zd", argc);
    return nullptr;
  }
  const char* name = PyUnicode_AsUTF8AndSize(argv[1], nullptr);
  if (name == nullptr) return nullptr;
  const int64_t bytes = argc == 3 ? PyLong_AsLongLong(argv[2]) : 0;
  if (bytes == -1 && PyErr_Occurred() != nullptr) return nullptr;
  void* data;
  if (!reinterpret_cast<Addresses*>(self)->torch.address(argv[0], name, bytes, &data)) {
    return nullptr;
  }
  return PyLong_FromVoidPtr(data);
}

PyMethodDef methods[] = {
    {"of", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(address_of)), METH_FASTCALL,
     "Return the address of a tensor whose storage holds its elements."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(end_direct<Addresses>)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"torchyard_cpu._native.Addresses", sizeof(Addresses), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyTypeObject* type;

// addresses(probe, handle, tensor type, parameter type, wrap, takes)
PyObject* make_addresses(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 6) {
    PyErr_Format(PyExc_TypeError, "addresses: expected 6 arguments, got %zd", argc);
    return nullptr;
  }
  Addresses* addresses = PyObject_New(Addresses, type);
  if (addresses == nullptr) return nullptr;
  new (&addresses->torch) Torch();
  if (addresses->torch.connect(argv[0], argv[1], argv[2], argv[3], argv[4], argv[5] == Py_True)) {
    return reinterpret_cast<PyObject*>(addresses);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(addresses));
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"addresses", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(make_addresses)),
     METH_FASTCALL, "Return an Addresses, or None where torch lacks what it needs."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_addresses(PyObject* module) {
  return add_direct_type(module, &spec, "Addresses", functions, &type);
}

}  // namespace torchyard

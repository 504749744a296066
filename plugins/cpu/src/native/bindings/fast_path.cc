#include "bindings/fast_path.h"

#include <initializer_list>

#include "bindings/fast_paths.h"

namespace torchyard {

namespace {

struct FastPath {
  PyObject_HEAD;
  void* path;
  const FastPathMethods* methods;
};

PyTypeObject* fast_path_type;

PyObject* try_call(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  const FastPath& fast_path = *reinterpret_cast<FastPath*>(self);
  if (!tensor_reader().begin_call()) return nullptr;
  return fast_path.methods->try_call(fast_path.path, argv, argc);
}

PyObject* enable(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  const FastPath& fast_path = *reinterpret_cast<FastPath*>(self);
  return fast_path.methods->enable(fast_path.path, argv, argc);
}

PyObject* clear(PyObject* self, PyObject*) {
  const FastPath& fast_path = *reinterpret_cast<FastPath*>(self);
  fast_path.methods->clear(fast_path.path);
  Py_RETURN_NONE;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  const FastPath& fast_path = *reinterpret_cast<FastPath*>(self);
  fast_path.methods->end(fast_path.path);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyMethodDef methods[] = {
    {"try_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(try_call)),
     METH_FASTCALL, "Compute a call whose request was enabled; None for any other."},
    {"enable", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(enable)), METH_FASTCALL,
     "Compute calls that make a request from now on."},
    {"clear", clear, METH_NOARGS, "Forget every request."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"torchyard_cpu._native.FastPath", sizeof(FastPath), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

PyObject* new_fast_path(void* path, const FastPathMethods* methods) {
  if (!tensor_reader().is_connected()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "fast path: expected connect_torch to have returned True before");
    methods->end(path);
    return nullptr;
  }
  FastPath* made = PyObject_New(FastPath, fast_path_type);
  if (made == nullptr) {
    methods->end(path);
    return nullptr;
  }
  made->path = path;
  made->methods = methods;
  return reinterpret_cast<PyObject*>(made);
}

int add_fast_paths(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return -1;
  fast_path_type = reinterpret_cast<PyTypeObject*>(type);
  Py_INCREF(type);
  if (PyModule_AddObject(module, "FastPath", type) != 0) return -1;
  for (const auto add : {add_tensor_reader, add_attention_fast_path, add_chain_fast_path,
                         add_linear_fast_path, add_linear_fused_fast_path, add_pointwise_fast_path,
                         add_quantised_fast_path, add_recurrent_fast_path, add_topk_fast_path}) {
    if (add(module) != 0) return -1;
  }
  return 0;
}

}  // namespace torchyard

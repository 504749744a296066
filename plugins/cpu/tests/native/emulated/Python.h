// As much of Python's C API as the native module uses, without an interpreter: the module's own
// source is compiled against it and called by a Python on another processor (server.cc).
//
// Objects live until the next call; reference counts are not kept.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

typedef std::ptrdiff_t Py_ssize_t;

struct PyObject {
  enum Kind : char {
    kNone = 'N',
    kBool = 'B',
    kInteger = 'i',
    kFloat = 'd',
    kText = 's',
    kBytes = 'b',
    kTuple = '(',
    kList = '[',
    kIterator = 'I',
  };
  Kind kind;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<PyObject*> items;
};

struct PyMethodDef {
  const char* name;
  PyObject* (*function)(PyObject*, PyObject*);
  int flags;
  const char* doc;
};
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
enum { METH_FASTCALL = 1, METH_NOARGS = 2, METH_O = 4 };

struct PyModuleDef {
  int base;
  const char* name;
  const char* doc;
  Py_ssize_t size;
  PyMethodDef* methods;
  void* slots;
  void* traverse;
  void* clear;
  void* free;
};
#define PyModuleDef_HEAD_INIT 0
#define PyMODINIT_FUNC extern "C" PyObject*

namespace python {

struct State {
  std::deque<PyObject> objects;
  const char* error = nullptr;  // the name of the exception's type
  std::string message;
  std::vector<const PyMethodDef*> methods;
  std::vector<std::pair<std::string, int64_t>> constants;
};
inline State state;

inline PyObject* make(PyObject::Kind kind) {
  state.objects.push_back({});
  state.objects.back().kind = kind;
  return &state.objects.back();
}
inline PyObject* make_text(const char* text, size_t size) {
  PyObject* object = make(PyObject::kText);
  object->text.assign(text, size);
  return object;
}
inline PyObject* make_integer(int64_t value) {
  PyObject* object = make(PyObject::kInteger);
  object->integer = value;
  return object;
}
inline PyObject* fail(const char* type, const std::string& message) {
  state.error = type;
  state.message = message;
  return nullptr;
}

inline PyObject none{PyObject::kNone, 0, 0, {}, {}};
inline PyObject yes{PyObject::kBool, 1, 0, {}, {}};
inline PyObject no{PyObject::kBool, 0, 0, {}, {}};

}  // namespace python

#define Py_None (&python::none)
#define Py_RETURN_NONE return Py_None
#define Py_True (&python::yes)
#define Py_False (&python::no)
#define Py_DECREF(object) static_cast<void>(object)
#define Py_XDECREF(object) static_cast<void>(object)
#define Py_CLEAR(object) ((object) = nullptr)
#define Py_BEGIN_ALLOW_THREADS {
#define Py_END_ALLOW_THREADS }

// An exception's type is its name.
#define PyExc_IndexError "IndexError"
#define PyExc_RuntimeError "RuntimeError"
#define PyExc_TypeError "TypeError"
#define PyExc_ValueError "ValueError"

inline PyObject* PyErr_Occurred() { return python::state.error == nullptr ? nullptr : Py_None; }
inline void PyErr_SetString(const char* type, const char* text) { python::fail(type, text); }
inline PyObject* PyErr_NoMemory() { return python::fail("MemoryError", ""); }

__attribute__((format(printf, 2, 3))) inline PyObject* PyErr_Format(const char* type,
                                                                    const char* format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof(text), format, values);
  va_end(values);
  return python::fail(type, text);
}

inline bool PyTuple_Check(const PyObject* object) { return object->kind == PyObject::kTuple; }
inline Py_ssize_t PyTuple_Size(const PyObject* object) {
  return static_cast<Py_ssize_t>(object->items.size());
}
inline PyObject* PyTuple_GetItem(const PyObject* object, Py_ssize_t i) {
  return object->items[static_cast<size_t>(i)];
}
inline PyObject* PyTuple_New(Py_ssize_t size) {
  PyObject* object = python::make(PyObject::kTuple);
  object->items.resize(static_cast<size_t>(size), Py_None);
  return object;
}
inline int PyTuple_SetItem(PyObject* object, Py_ssize_t i, PyObject* item) {
  object->items[static_cast<size_t>(i)] = item;
  return 0;
}

inline PyObject* PyList_New(Py_ssize_t) { return python::make(PyObject::kList); }
inline int PyList_Append(PyObject* list, PyObject* item) {
  list->items.push_back(item);
  return 0;
}
inline PyObject* PyList_AsTuple(const PyObject* list) {
  PyObject* tuple = PyTuple_New(0);
  tuple->items = list->items;
  return tuple;
}

inline int64_t PyLong_AsLongLong(const PyObject* object) {
  if (object->kind == PyObject::kInteger || object->kind == PyObject::kBool) return object->integer;
  python::fail("TypeError", "object cannot be interpreted as an integer");
  return -1;
}
inline long PyLong_AsLong(const PyObject* object) { return PyLong_AsLongLong(object); }
inline PyObject* PyLong_FromLongLong(int64_t value) { return python::make_integer(value); }
inline PyObject* PyLong_FromSize_t(size_t value) {
  return python::make_integer(static_cast<int64_t>(value));
}
inline PyObject* PyLong_FromLong(long value) { return python::make_integer(value); }
inline PyObject* PyBool_FromLong(long value) { return value != 0 ? Py_True : Py_False; }

inline double PyFloat_AsDouble(const PyObject* object) {
  if (object->kind == PyObject::kFloat) return object->real;
  return static_cast<double>(PyLong_AsLongLong(object));
}

inline PyObject* PyUnicode_FromString(const char* text) {
  return python::make_text(text, std::strlen(text));
}
inline const char* PyUnicode_AsUTF8AndSize(const PyObject* object, Py_ssize_t* size) {
  if (object->kind != PyObject::kText) {
    python::fail("TypeError", "bad argument type for built-in operation");
    return nullptr;
  }
  if (size != nullptr) *size = static_cast<Py_ssize_t>(object->text.size());
  return object->text.c_str();
}
inline int PyBytes_AsStringAndSize(PyObject* object, char** bytes, Py_ssize_t* size) {
  if (object->kind != PyObject::kBytes) {
    python::fail("TypeError", "expected bytes");
    return -1;
  }
  *bytes = object->text.data();
  *size = static_cast<Py_ssize_t>(object->text.size());
  return 0;
}

inline int PyObject_IsTrue(const PyObject* object) {
  return object->kind == PyObject::kNone ? 0 : object->integer != 0;
}
inline PyObject* PyObject_GetIter(const PyObject* object) {
  if (object->kind != PyObject::kTuple && object->kind != PyObject::kList) {
    return python::fail("TypeError", "object is not iterable");
  }
  PyObject* iterator = python::make(PyObject::kIterator);
  iterator->items = object->items;
  return iterator;
}
inline PyObject* PyIter_Next(PyObject* iterator) {
  const size_t at = static_cast<size_t>(iterator->integer++);
  return at < iterator->items.size() ? iterator->items[at] : nullptr;
}

// Knows tuples "(...)" of s (text), i, n and L (integers), O and N (objects).
inline PyObject* Py_BuildValue(const char* format, ...) {
  PyObject* tuple = PyTuple_New(0);
  va_list values;
  va_start(values, format);
  for (const char* c = format; *c != '\0'; ++c) {
    if (*c == 's') tuple->items.push_back(PyUnicode_FromString(va_arg(values, const char*)));
    if (*c == 'i') tuple->items.push_back(python::make_integer(va_arg(values, int)));
    if (*c == 'n' || *c == 'L') {
      tuple->items.push_back(python::make_integer(va_arg(values, int64_t)));
    }
    if (*c == 'O' || *c == 'N') tuple->items.push_back(va_arg(values, PyObject*));
  }
  va_end(values);
  return tuple;
}

inline int PyModule_AddFunctions(PyObject*, const PyMethodDef* methods) {
  for (; methods->name != nullptr; ++methods) python::state.methods.push_back(methods);
  return 0;
}
inline PyObject* PyModule_Create(PyModuleDef* definition) {
  PyModule_AddFunctions(Py_None, definition->methods);
  return Py_None;
}
inline int PyModule_AddIntConstant(PyObject*, const char* name, long value) {
  python::state.constants.push_back({name, value});
  return 0;
}

// Arguments of torchyard_cpu._shm's functions, read from Python's objects.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <mutex>

#include "shm/collectives.h"
#include "shm/group.h"
#include "shm/messages.h"

namespace torchyard::shm {

constexpr char kCapsule[] = "torchyard_cpu._shm.group";

struct Member {
  Group group;
  std::mutex turn;  // collectives of one group are one after another
  Messages* messages = nullptr;
};

// Lets the interpreter run its handlers of signals; true where one raised.
inline bool interrupted() {
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return raised;
}

// A call's arguments, read one after another; after a failure a Python exception is set.
class Reader {
 public:
  Reader(PyObject* const* arguments, Py_ssize_t given, Py_ssize_t expected)
      : next_(arguments), ok_(given == expected) {
    if (!ok_) {
      PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, given);
    }
  }

  bool ok() const { return ok_; }

  Member* member() {
    if (!ok_) return nullptr;
    void* found = PyCapsule_GetPointer(*next_++, kCapsule);
    ok_ = found != nullptr;
    return static_cast<Member*>(found);
  }
  int64_t integer() {
    if (!ok_) return 0;
    const long long value = PyLong_AsLongLong(*next_++);
    ok_ = value != -1 || PyErr_Occurred() == nullptr;
    return value;
  }
  int64_t within(const char* name, int64_t least, int64_t most) {
    const int64_t value = integer();
    if (ok_ && (value < least || value > most)) {
      PyErr_Format(PyExc_ValueError, "%s: expected %lld to %lld, got %lld", name,
                   static_cast<long long>(least), static_cast<long long>(most),
                   static_cast<long long>(value));
      ok_ = false;
    }
    return value;
  }
  template <class T>
  T* pointer() {
    return reinterpret_cast<T*>(static_cast<intptr_t>(integer()));
  }
  size_t size(const char* name) { return static_cast<size_t>(within(name, 0, int64_t{1} << 48)); }
  // Returns how many integers the tuple holds.
  Py_ssize_t integers(const char* name, int64_t* out, Py_ssize_t least, Py_ssize_t most) {
    if (!ok_) return 0;
    PyObject* tuple = *next_++;
    ok_ = PyTuple_Check(tuple) && PyTuple_Size(tuple) >= least && PyTuple_Size(tuple) <= most;
    if (!ok_) {
      PyErr_Format(PyExc_TypeError, "%s: expected a tuple of %zd to %zd integers", name, least,
                   most);
      return 0;
    }
    const Py_ssize_t count = PyTuple_Size(tuple);
    for (Py_ssize_t i = 0; i < count && ok_; ++i) {
      out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
      ok_ = out[i] != -1 || PyErr_Occurred() == nullptr;
    }
    return count;
  }
  Arithmetic arithmetic() {
    const auto dtype = static_cast<Dtype>(within("dtype", 0, kDtypes - 1));
    const auto operation = static_cast<Operation>(within("operation", 0, kOperations - 1));
    const Reduction found = ok_ ? find_reduction(dtype, operation) : nullptr;
    if (ok_ && found == nullptr) {
      PyErr_SetString(PyExc_ValueError, "operation: the dtype has none like this; see reduces()");
      ok_ = false;
    }
    return {dtype, operation, found};
  }
  Patience patience() { return {within("milliseconds", 0, int64_t{1} << 40), interrupted}; }

 private:
  PyObject* const* next_;
  bool ok_;
};

}  // namespace torchyard::shm

#include "bindings/limits/methods.h"

#include "limits/limits.h"

namespace torchyard {
namespace {

constexpr long kMaxThreads = 4096;
constexpr double kMaxSeconds = 60;

// Reads how many threads measure and for how long.
bool read_effort(PyObject* args, int* threads, double* seconds) {
  long count = 0;
  if (!PyArg_ParseTuple(args, "ld", &count, seconds)) return false;
  if (count < 1 || count > kMaxThreads || !(*seconds > 0) || *seconds > kMaxSeconds) {
    PyErr_SetString(PyExc_ValueError, "threads: expected 1 to 4096; seconds: expected up to 60");
    return false;
  }
  *threads = static_cast<int>(count);
  return true;
}

PyObject* arithmetic_limits(PyObject*, PyObject* args) {
  int threads = 0;
  double seconds = 0;
  if (!read_effort(args, &threads, &seconds)) return nullptr;
  const FeatureSet features = detect_features();
  PyObject* found = PyDict_New();
  if (found == nullptr) return nullptr;
  for (size_t i = 0; i < kArithmeticLoops.size(); ++i) {
    const ArithmeticLoop& loop = kArithmeticLoops[i];
    PyObject* dtype = PyUnicode_FromString(loop.dtype);
    if (dtype == nullptr) break;
    const int known = PyDict_Contains(found, dtype);
    if (known == 0 && (loop.required & ~features) == 0) {
      double rate = 0;
      Py_BEGIN_ALLOW_THREADS;
      rate = operations_per_second(loop, threads, seconds);
      Py_END_ALLOW_THREADS;
      PyObject* value = PyFloat_FromDouble(rate);
      if (value != nullptr) PyDict_SetItem(found, dtype, value);
      Py_XDECREF(value);
    }
    Py_DECREF(dtype);
    if (PyErr_Occurred() != nullptr) break;
  }
  if (PyErr_Occurred() == nullptr) return found;
  Py_DECREF(found);
  return nullptr;
}

// Measures memory with one of the functions of limits.h.
PyObject* memory_limit(PyObject* args, double (*measure)(int, double)) {
  int threads = 0;
  double seconds = 0;
  if (!read_effort(args, &threads, &seconds)) return nullptr;
  double rate = 0;
  Py_BEGIN_ALLOW_THREADS;
  rate = measure(threads, seconds);
  Py_END_ALLOW_THREADS;
  if (rate == 0) return PyErr_NoMemory();
  return PyFloat_FromDouble(rate);
}

PyObject* read_limit(PyObject*, PyObject* args) {
  return memory_limit(args, bytes_read_per_second);
}

PyObject* update_limit(PyObject*, PyObject* args) {
  return memory_limit(args, bytes_updated_per_second);
}

PyMethodDef methods[] = {
    {"arithmetic_limits", arithmetic_limits, METH_VARARGS,
     "Return the operations per second that this processor reaches, by dtype."},
    {"read_limit", read_limit, METH_VARARGS, "Return the bytes per second read from memory."},
    {"update_limit", update_limit, METH_VARARGS,
     "Return the bytes per second read from memory and written back, both counted."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_limits(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace torchyard

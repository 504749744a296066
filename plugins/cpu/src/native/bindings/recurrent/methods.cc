// The module's functions of recurrent layers; their signatures are in torchyard_cpu/_native.pyi.
#include "bindings/recurrent/methods.h"

#include "bindings/arguments.h"
#include "bindings/recurrent/arguments.h"
#include "recurrent/recurrent.h"

namespace torchyard {

namespace {

const char* element_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  return "";
}

bool takes(const char* function, Py_ssize_t expected, Py_ssize_t given) {
  if (given == expected) return true;
  PyErr_Format(PyExc_TypeError, "%s: expected %zd arguments, got %zd", function, expected, given);
  return false;
}

PyObject* packed_bytes(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  RecurrentSizes sizes;
  if (!takes("recurrent_packed_bytes", 2, argc)) return nullptr;
  const RecurrentKernel* kernel = read_kernel(argv[0], kRecurrentKernels, "recurrent_kernels");
  if (kernel == nullptr || !read_recurrent_sizes(argv[1], &sizes)) return nullptr;
  return PyLong_FromSize_t(recurrent_packed_bytes(sizes, *kernel));
}

PyObject* pack(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  RecurrentSizes sizes;
  int threads;
  if (!takes("recurrent_pack", 5, argc)) return nullptr;
  const RecurrentKernel* kernel = read_kernel(argv[0], kRecurrentKernels, "recurrent_kernels");
  if (kernel == nullptr || !read_recurrent_sizes(argv[1], &sizes) ||
      !read_threads(argv[4], &threads)) {
    return nullptr;
  }
  const int64_t cells = sizes.layers * sizes.directions;
  int64_t addresses[5 * kMostRecurrentCells];
  CellWeights weights[kMostRecurrentCells];
  if (!read_integers(argv[2], "weights", 5 * cells, addresses)) return nullptr;
  for (int64_t i = 0; i < cells; ++i) {
    const int64_t* at = addresses + 5 * i;
    weights[i] = {pointer<const void>(at[0]), pointer<const void>(at[1]),
                  pointer<const void>(at[2]), pointer<const void>(at[3]),
                  pointer<const void>(at[4])};
  }
  const int64_t out = PyLong_AsLongLong(argv[3]);
  if (out == -1 && PyErr_Occurred() != nullptr) return nullptr;
  if (out % 64 != 0) {
    PyErr_SetString(PyExc_ValueError, "packed: expected an address that 64 divides");
    return nullptr;
  }
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = recurrent_pack(sizes, weights, *kernel, pointer<std::byte>(out), threads);
  Py_END_ALLOW_THREADS;
  if (status == Status::kOutOfMemory) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

PyObject* forward(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  RecurrentArgs args = {};
  RunArguments with;
  int64_t run[2];
  int64_t input[3];
  int64_t at[8];
  if (!takes("recurrent_forward", 7, argc)) return nullptr;
  const RecurrentKernel* kernel = read_kernel(argv[0], kRecurrentKernels, "recurrent_kernels");
  if (kernel == nullptr || !read_recurrent_sizes(argv[1], &args.sizes) ||
      !read_integers(argv[2], "run", 2, run) || !read_integers(argv[3], "input", 3, input) ||
      !read_integers(argv[4], "addresses", 8, at) || !read_run(argv + 5, &with)) {
    return nullptr;
  }
  if (run[0] < 1 || run[1] < 0) {
    PyErr_SetString(PyExc_ValueError, "run: expected at least 1 step and a batch of at least 0");
    return nullptr;
  }
  args.steps = run[0];
  args.batch = run[1];
  args.input = pointer<const void>(input[0]);
  args.input_step = input[1];
  args.input_row = input[2];
  args.hidden = pointer<const void>(at[0]);
  args.cell = pointer<const void>(at[1]);
  args.packed = pointer<const std::byte>(at[2]);
  args.lengths = pointer<const int64_t>(at[3]);
  args.output = pointer<void>(at[4]);
  args.hidden_out = pointer<void>(at[5]);
  args.cell_out = pointer<void>(at[6]);
  args.reserve = pointer<float>(at[7]);
  for (int64_t b = 0; args.lengths != nullptr && b < args.batch; ++b) {
    if (args.lengths[b] >= 1 && args.lengths[b] <= args.steps) continue;
    return PyErr_Format(PyExc_ValueError, "lengths: expected 1 to %lld, got %lld",
                        static_cast<long long>(args.steps),
                        static_cast<long long>(args.lengths[b]));
  }
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = recurrent_forward(args, *kernel, with.threads, with.poison);
  Py_END_ALLOW_THREADS;
  if (status == Status::kOutOfMemory) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

// A tuple of the names of `features`.
PyObject* names_of(FeatureSet features) {
  PyObject* list = PyList_New(0);
  if (list == nullptr) return nullptr;
  for (size_t i = 0; i < kFeatureCount; ++i) {
    if ((features & kFeatureNames[i].feature) == 0) continue;
    PyObject* name = PyUnicode_FromString(kFeatureNames[i].name);
    const int failed = name == nullptr ? -1 : PyList_Append(list, name);
    Py_XDECREF(name);
    if (failed != 0) {
      Py_DECREF(list);
      return nullptr;
    }
  }
  PyObject* names = PyList_AsTuple(list);
  Py_DECREF(list);
  return names;
}

PyObject* kernels(PyObject*, PyObject*) {
  const Py_ssize_t count = static_cast<Py_ssize_t>(kRecurrentKernels.size());
  PyObject* rows = PyTuple_New(count);
  if (rows == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const RecurrentKernel& kernel = kRecurrentKernels[static_cast<size_t>(i)];
    PyObject* required = names_of(kernel.required);
    PyObject* row = required == nullptr
                        ? nullptr
                        : Py_BuildValue("(sssN)", kernel.name, element_name(kernel.dtype),
                                        kernel.isa, required);
    if (row == nullptr || PyTuple_SetItem(rows, i, row) != 0) {
      Py_DECREF(rows);
      return nullptr;
    }
  }
  return rows;
}

template <class Function>
PyCFunction erased(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"recurrent_packed_bytes", erased(packed_bytes), METH_FASTCALL,
     "Return the size of packed weights."},
    {"recurrent_pack", erased(pack), METH_FASTCALL, "Lay out weights for a recurrent kernel."},
    {"recurrent_forward", erased(forward), METH_FASTCALL, "Run recurrent layers on raw addresses."},
    {"recurrent_kernels", kernels, METH_NOARGS,
     "Return (name, dtype, isa, required features) of each recurrent kernel."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_recurrent(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace torchyard

#include "bindings/tensor_reader.h"

#include <cstring>
#include <initializer_list>

namespace torchyard {

namespace {

constexpr int64_t kDTypeBytes[kTensorDTypes] = {4, 8, 2, 2, 1, 1, 2, 4, 8, 1};

bool parse_dtype(const dlpack::DataType& dtype, TensorDType* out) {
  if (dtype.lanes != 1) return false;
  switch (dtype.code) {
    case dlpack::kFloat:
      if (dtype.bits == 16) return *out = TensorDType::kFloat16, true;
      if (dtype.bits == 32) return *out = TensorDType::kFloat32, true;
      return *out = TensorDType::kFloat64, dtype.bits == 64;
    case dlpack::kBFloat:
      return *out = TensorDType::kBFloat16, dtype.bits == 16;
    case dlpack::kBool:
      return *out = TensorDType::kBool, dtype.bits == 8;
    case dlpack::kUInt:
      return *out = TensorDType::kUInt8, dtype.bits == 8;
    case dlpack::kInt:
      if (dtype.bits == 8) return *out = TensorDType::kInt8, true;
      if (dtype.bits == 16) return *out = TensorDType::kInt16, true;
      if (dtype.bits == 32) return *out = TensorDType::kInt32, true;
      return *out = TensorDType::kInt64, dtype.bits == 64;
  }
  return false;
}

// The bytes of storage up to the end of the last element that sizes, strides and offset reach; -1
// where int64 does not hold them.
int64_t bytes_reached(const TensorView& view, int64_t offset) {
  int64_t last = offset;
  for (int64_t d = 0; d < view.dim; ++d) {
    if (view.sizes[d] == 0) return 0;
    int64_t step;
    if (__builtin_mul_overflow(view.sizes[d] - 1, view.strides[d], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return -1;
    }
  }
  const int64_t element = kDTypeBytes[static_cast<int>(view.dtype)];
  return __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element, &last)
             ? -1
             : last;
}

// A tuple of integers; null with an exception set.
PyObject* tuple_of(const int64_t* values, int64_t count) {
  PyObject* tuple = PyTuple_New(count);
  for (int64_t i = 0; tuple != nullptr && i < count; ++i) {
    PyObject* value = PyLong_FromLongLong(values[i]);
    if (value == nullptr || PyTuple_SetItem(tuple, i, value) != 0) Py_CLEAR(tuple);
  }
  return tuple;
}

// Whether gradients are recorded, in the call of a path that this thread is in.
thread_local bool records_gradients = true;

PyObject* type_of(PyObject* object) { return reinterpret_cast<PyObject*>(Py_TYPE(object)); }

}  // namespace

// How many bytes of storage a tensor's sizes, strides and offset reach, and how many there are:
// fewer where somebody freed the storage or made it smaller.
struct TensorReader::Storage {
  int64_t expected;
  int64_t found;

  bool suffices() const { return expected >= 0 && expected <= found; }
};

void contiguous_strides(int64_t dim, const int64_t* sizes, int64_t* strides) {
  int64_t step = 1;
  for (int64_t d = dim - 1; d >= 0; --d) {
    strides[d] = step;
    step *= sizes[d] > 1 ? sizes[d] : 1;
  }
}

int64_t view_bytes(const TensorView& view) {
  int64_t bytes = kDTypeBytes[static_cast<int>(view.dtype)];
  for (int64_t d = 0; d < view.dim; ++d) bytes *= view.sizes[d];
  return bytes;
}

int TensorReader::connect(PyObject* parts) {
  PyObject *storage_type, *dtypes;
  if (!PyArg_ParseTuple(parts, "OOOO!OOOO", &tensor_type_, &parameter_type_, &storage_type,
                        &PyTuple_Type, &dtypes, &is_grad_enabled_, &get_num_threads_,
                        &empty_strided_, &empty_like_)) {
    return -1;
  }
  if (PyTuple_Size(dtypes) != kTensorDTypes) {
    PyErr_Format(PyExc_ValueError, "dtypes: expected %d", kTensorDTypes);
    return -1;
  }
  for (PyObject* kept : {tensor_type_, parameter_type_, is_grad_enabled_, get_num_threads_,
                         empty_strided_, empty_like_}) {
    Py_INCREF(kept);
  }
  PyObject* capsule = PyObject_GetAttrString(tensor_type_, dlpack::kExchangeApiAttribute);
  const auto* api = capsule == nullptr
                        ? nullptr
                        : static_cast<const dlpack::ExchangeApi*>(
                              PyCapsule_GetPointer(capsule, dlpack::kExchangeApiCapsule));
  // The table lives as long as torch, which is not unloaded.
  Py_XDECREF(capsule);
  if (api == nullptr || api->header.version.major != dlpack::kMajorVersion) {
    PyErr_Clear();
    return 0;
  }
  is_neg_ = PyObject_GetAttrString(tensor_type_, "is_neg");
  storage_of_ = PyObject_GetAttrString(tensor_type_, "untyped_storage");
  storage_offset_ = PyObject_GetAttrString(tensor_type_, "storage_offset");
  storage_bytes_ = PyObject_GetAttrString(storage_type, "nbytes");
  storage_resize_ = PyObject_GetAttrString(storage_type, "resize_");
  requires_grad_name_ = PyUnicode_InternFromString("requires_grad");
  bool complete = is_neg_ != nullptr && storage_of_ != nullptr && storage_offset_ != nullptr &&
                  storage_bytes_ != nullptr && storage_resize_ != nullptr &&
                  requires_grad_name_ != nullptr;
  for (int i = 0; complete && i < kTensorDTypes; ++i) {
    keywords_[i] = Py_BuildValue("{s:O}", "dtype", PyTuple_GetItem(dtypes, i));
    complete = keywords_[i] != nullptr;
  }
  if (!complete) return -1;
  read_ = api->dltensor_from_py_object_no_sync;
  return read_ != nullptr;
}

int TensorReader::is_true(PyObject* callable, PyObject* object) const {
  PyObject* found = PyObject_CallFunctionObjArgs(callable, object, nullptr);
  if (found == nullptr) return -1;
  const bool is = found == Py_True;
  Py_DECREF(found);
  return is;
}

bool TensorReader::read_integer(PyObject* callable, PyObject* object, int64_t* out) const {
  PyObject* found = PyObject_CallFunctionObjArgs(callable, object, nullptr);
  if (found == nullptr) return false;
  *out = PyLong_AsLongLong(found);
  Py_DECREF(found);
  return *out != -1 || PyErr_Occurred() == nullptr;
}

bool TensorReader::read_memory(PyObject* object, TensorView* out, Storage* storage) const {
  dlpack::Tensor tensor;
  if (read_(object, &tensor) != 0) {
    // Wrappers of transforms, and tensors without strides: the exception says so of each.
    PyErr_Clear();
    return false;
  }
  if (tensor.device.type != dlpack::kCpu || !parse_dtype(tensor.dtype, &out->dtype) ||
      (tensor.strides == nullptr && tensor.ndim != 0)) {
    return false;
  }
  out->sizes = tensor.shape;
  out->strides = tensor.strides;
  out->data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  out->dim = tensor.ndim;
  PyObject* held = PyObject_CallFunctionObjArgs(storage_of_, object, nullptr);
  int64_t offset;
  const bool read = held != nullptr && read_integer(storage_bytes_, held, &storage->found) &&
                    read_integer(storage_offset_, object, &offset);
  Py_XDECREF(held);
  if (!read) {
    // A tensor without storage.
    PyErr_Clear();
    return false;
  }
  storage->expected = bytes_reached(*out, offset);
  // Storage that has a size but no memory: of fake tensors, and of zeros that are not stored.
  if (tensor.data == nullptr && storage->expected != 0) storage->found = 0;
  return true;
}

bool TensorReader::begin_call() const {
  PyObject* enabled = PyObject_CallNoArgs(is_grad_enabled_);
  records_gradients = enabled != Py_False;
  Py_XDECREF(enabled);
  return enabled != nullptr;
}

bool TensorReader::read_plain(PyObject* object, int64_t dim, bool constant, TensorView* out) const {
  if (type_of(object) != tensor_type_ && type_of(object) != parameter_type_) return false;
  // Methods may let another thread run, which may drop the object from the list that it is in.
  Py_INCREF(object);
  bool reads = is_true(is_neg_, object) == 0;
  if (reads && !constant && records_gradients) {
    PyObject* wanted = PyObject_GetAttr(object, requires_grad_name_);
    reads = wanted == Py_False;
    Py_XDECREF(wanted);
  }
  Storage storage;
  reads = reads && read_memory(object, out, &storage) && out->dim <= kMaxTensorDim &&
          (dim < 0 || out->dim == dim) && storage.suffices();
  Py_DECREF(object);
  return reads;
}

bool TensorReader::read(PyObject* object, int64_t dim, TensorView* out) const {
  return read_plain(object, dim, false, out) && out->data != nullptr;
}

bool TensorReader::read(PyObject* object, TensorView* out) const { return read(object, -1, out); }

bool TensorReader::read_integers(PyObject* object, int64_t dim, TensorView* out) const {
  return type_of(object) == tensor_type_ && read_plain(object, dim, true, out);
}

bool TensorReader::read_constant(PyObject* object, TensorView* out) const {
  return read_plain(object, -1, true, out);
}

bool TensorReader::address(PyObject* object, const char* name, int64_t bytes, void** out) const {
  const int is = PyObject_IsInstance(object, tensor_type_);
  if (is < 0) return false;
  TensorView view;
  Storage storage;
  if (is == 0 || !read_memory(object, &view, &storage)) {
    if (PyErr_Occurred() != nullptr) return false;
    PyErr_Format(PyExc_TypeError,
                 "%s: expected a dense tensor on cpu of a dtype that kernels read, got %R", name,
                 type_of(object));
    return false;
  }
  if (!storage.suffices()) {
    PyErr_Format(
        PyExc_ValueError,
        "%s: expected %lld bytes of storage, got %lld: its memory was freed, made smaller, "
        "or never there; give it memory again before the call",
        name, static_cast<long long>(storage.expected), static_cast<long long>(storage.found));
    return false;
  }
  const int64_t own = view_bytes(view);
  if (own < bytes) {
    PyErr_Format(PyExc_ValueError, "%s: expected a tensor of %lld bytes, got %lld", name,
                 static_cast<long long>(bytes), static_cast<long long>(own));
    return false;
  }
  *out = view.data;
  return true;
}

// Null with an exception set.
PyObject* TensorReader::new_tensor(int64_t dim, const int64_t* sizes, TensorDType dtype) const {
  int64_t steps[kMaxTensorDim];
  contiguous_strides(dim, sizes, steps);
  PyObject* shape = tuple_of(sizes, dim);
  PyObject* strides = tuple_of(steps, dim);
  PyObject* given =
      shape == nullptr || strides == nullptr ? nullptr : PyTuple_Pack(2, shape, strides);
  Py_XDECREF(shape);
  Py_XDECREF(strides);
  if (given == nullptr) return nullptr;
  PyObject* made = PyObject_Call(empty_strided_, given, keywords_[static_cast<int>(dtype)]);
  Py_DECREF(given);
  return made;
}

// A tensor whose storage was given back: null with an exception set.
PyObject* TensorReader::new_pattern(int64_t dim, const int64_t* sizes, TensorDType dtype) const {
  PyObject* made = new_tensor(dim, sizes, dtype);
  PyObject* held =
      made == nullptr ? nullptr : PyObject_CallFunctionObjArgs(storage_of_, made, nullptr);
  PyObject* none = held == nullptr ? nullptr : PyLong_FromLong(0);
  PyObject* resized = none == nullptr
                          ? nullptr
                          : PyObject_CallFunctionObjArgs(storage_resize_, held, none, nullptr);
  Py_XDECREF(none);
  Py_XDECREF(held);
  if (resized == nullptr) Py_CLEAR(made);
  Py_XDECREF(resized);
  return made;
}

bool TensorReader::make(int64_t dim, const int64_t* sizes, TensorDType dtype,
                        NewTensor* out) const {
  uint64_t hash = static_cast<uint64_t>(dtype);
  for (int64_t d = 0; d < dim; ++d) {
    hash = (hash ^ static_cast<uint64_t>(sizes[d])) * 0x9E3779B97F4A7C15u;
  }
  Pattern& pattern = patterns_[hash >> 58];
  static_assert(kPatterns == 1 << (64 - 58), "the hash's first bits are a place");
  const bool known = pattern.dim == dim && pattern.dtype == dtype &&
                     std::memcmp(pattern.sizes, sizes, sizeof(int64_t) * dim) == 0;
  if (known && pattern.tensor == nullptr) {
    // Another thread may run meanwhile, and make the same or give the place to other sizes.
    PyObject* made = new_pattern(dim, sizes, dtype);
    if (made == nullptr) return false;
    const bool wanted = pattern.tensor == nullptr && pattern.dim == dim && pattern.dtype == dtype &&
                        std::memcmp(pattern.sizes, sizes, sizeof(int64_t) * dim) == 0;
    if (wanted) pattern.tensor = made;
    if (!wanted) Py_DECREF(made);
  }
  if (known && pattern.tensor != nullptr) {
    PyObject* like = pattern.tensor;
    Py_INCREF(like);
    out->tensor = PyObject_CallFunctionObjArgs(empty_like_, like, nullptr);
    Py_DECREF(like);
  } else {
    PyObject* former = pattern.tensor;
    pattern.dim = dim;
    pattern.dtype = dtype;
    std::memcpy(pattern.sizes, sizes, sizeof(int64_t) * dim);
    pattern.tensor = nullptr;
    Py_XDECREF(former);
    out->tensor = new_tensor(dim, sizes, dtype);
  }
  if (out->tensor == nullptr) return false;
  dlpack::Tensor tensor;
  const bool read = read_(out->tensor, &tensor) == 0;
  // A default type of tensors may be another device's.
  if (!read || tensor.device.type != dlpack::kCpu) {
    if (read) PyErr_SetString(PyExc_RuntimeError, "expected torch to make tensors on the CPU");
    Py_CLEAR(out->tensor);
    return false;
  }
  out->data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  return true;
}

int TensorReader::threads() const {
  PyObject* found = PyObject_CallNoArgs(get_num_threads_);
  const long threads = found == nullptr ? 1 : PyLong_AsLong(found);
  Py_XDECREF(found);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return threads < 1 ? 1 : static_cast<int>(threads);
}

namespace {

TensorReader reader;

// connect_torch(parts)
PyObject* connect_torch(PyObject*, PyObject* parts) {
  const int connected = reader.connect(parts);
  return connected < 0 ? nullptr : PyBool_FromLong(connected);
}

// address(tensor, name, bytes)
PyObject* address(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 2 && argc != 3) {
    PyErr_Format(PyExc_TypeError, "address: expected 2 or 3 arguments, got %zd", argc);
    return nullptr;
  }
  const char* name = PyUnicode_AsUTF8AndSize(argv[1], nullptr);
  if (name == nullptr) return nullptr;
  const int64_t bytes = argc == 3 ? PyLong_AsLongLong(argv[2]) : 0;
  if (bytes == -1 && PyErr_Occurred() != nullptr) return nullptr;
  if (!reader.is_connected()) {
    PyErr_SetString(PyExc_RuntimeError, "address: connect_torch was not called, or returned False");
    return nullptr;
  }
  void* data;
  return reader.address(argv[0], name, bytes, &data) ? PyLong_FromVoidPtr(data) : nullptr;
}

PyMethodDef functions[] = {
    {"connect_torch", connect_torch, METH_O, "Return whether torch's tensors can be read."},
    {"address", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(address)), METH_FASTCALL,
     "Return the address of a tensor whose storage holds its elements."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

TensorReader& tensor_reader() { return reader; }

int add_tensor_reader(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace torchyard

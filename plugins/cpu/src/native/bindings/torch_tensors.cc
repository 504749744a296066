#include "bindings/torch_tensors.h"

#include <dlfcn.h>

#include <initializer_list>

namespace torchyard {

namespace {

constexpr int64_t kProbe[4] = {2, 3, 5, 7};

// In TensorDType's order.
constexpr const char* kDTypeFunctions[kTensorDTypes] = {
    "aoti_torch_dtype_float32",  "aoti_torch_dtype_float64", "aoti_torch_dtype_float16",
    "aoti_torch_dtype_bfloat16", "aoti_torch_dtype_uint8",   "aoti_torch_dtype_int8",
    "aoti_torch_dtype_int16",    "aoti_torch_dtype_int32",   "aoti_torch_dtype_int64",
    "aoti_torch_dtype_bool",
};

constexpr int64_t kDTypeBytes[kTensorDTypes] = {4, 8, 2, 2, 1, 1, 2, 4, 8, 1};

template <class Function>
bool look_up(void* library, const char* name, Function** out) {
  *out = reinterpret_cast<Function*>(dlsym(library, name));
  return *out != nullptr;
}

// Whether an attribute that holds a bool is false; -1 with an exception set.
int is_false(PyObject* object, PyObject* name) {
  PyObject* found = PyObject_GetAttr(object, name);
  if (found == nullptr) return -1;
  const bool is = found == Py_False;
  Py_DECREF(found);
  return is;
}

}  // namespace

void contiguous_strides(int64_t dim, const int64_t* sizes, int64_t* strides) {
  int64_t step = 1;
  for (int64_t d = dim - 1; d >= 0; --d) {
    strides[d] = step;
    step *= sizes[d] > 1 ? sizes[d] : 1;
  }
}

bool TorchFunctions::find() {
  // Python loads torch's libraries for themselves, so the look-up needs their name. It is never
  // closed: torch is not unloaded.
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  for (int i = 0; i < kTensorDTypes; ++i) {
    if (!look_up(library, kDTypeFunctions[i], &dtypes[i])) return false;
  }
  return look_up(library, "aoti_torch_get_dim", &get_dim) &&
         look_up(library, "aoti_torch_get_sizes", &get_sizes) &&
         look_up(library, "aoti_torch_get_strides", &get_strides) &&
         look_up(library, "aoti_torch_get_dtype", &get_dtype) &&
         look_up(library, "aoti_torch_get_device_type", &get_device_type) &&
         look_up(library, "aoti_torch_get_layout", &get_layout) &&
         look_up(library, "aoti_torch_get_data_ptr", &get_data_ptr) &&
         look_up(library, "aoti_torch_get_storage_size", &get_storage_size) &&
         look_up(library, "aoti_torch_get_storage_offset", &get_storage_offset) &&
         look_up(library, "aoti_torch_empty_strided", &empty_strided) &&
         look_up(library, "aoti_torch_delete_tensor_object", &delete_tensor_object) &&
         look_up(library, "torch_get_num_threads", &get_num_threads) &&
         look_up(library, "aoti_torch_grad_mode_is_enabled", &grad_mode_is_enabled) &&
         look_up(library, "aoti_torch_device_type_cpu", &device_type_cpu) &&
         look_up(library, "aoti_torch_layout_strided", &layout_strided);
}

namespace {

// What the first word of a tensor of torch's own class with strides holds, as of every object with
// virtual functions: where these are, behind the two words that a table of them starts with.
const void* find_strided_class() {
  const char* table = nullptr;
  void* library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr || !look_up(library, "_ZTVN3c1010TensorImplE", &table)) return nullptr;
  return table + 2 * sizeof(void*);
}

}  // namespace

bool Torch::connect(PyObject* probe, PyObject* handle, PyObject* tensor_type,
                    PyObject* parameter_type, PyObject* wrap, bool takes) {
  void** object = static_cast<void**>(PyCapsule_GetPointer(handle, nullptr));
  if (object == nullptr) {
    PyErr_Clear();
    return false;
  }
  if (!functions_.find()) return false;
  strided_class_ = find_strided_class();
  cdata_name_ = PyUnicode_InternFromString("_cdata");
  requires_grad_name_ = PyUnicode_InternFromString("requires_grad");
  is_neg_ = PyObject_GetAttrString(tensor_type, "is_neg");
  Py_INCREF(tensor_type);
  tensor_type_ = tensor_type;
  Py_INCREF(parameter_type);
  parameter_type_ = parameter_type;
  Py_INCREF(wrap);
  wrap_ = wrap;
  wrap_takes_ = takes;
  cpu = functions_.device_type_cpu();
  strided = functions_.layout_strided();
  for (int i = 0; i < kTensorDTypes; ++i) dtypes_[i] = functions_.dtypes[i]();
  float32 = dtype(TensorDType::kFloat32);
  bfloat16 = dtype(TensorDType::kBFloat16);
  float16 = dtype(TensorDType::kFloat16);
  void* impl = nullptr;
  SeenTensor seen;
  int64_t strides[4];
  contiguous_strides(4, kProbe, strides);
  // The comparison of pointers comes first: only where it holds may a function follow one.
  bool holds = is_neg_ != nullptr && handle_of(probe, &impl) && *object == impl &&
               see(probe, 4, &seen) && seen.dtype == float32;
  for (int d = 0; holds && d < 4; ++d) {
    holds = seen.sizes[d] == kProbe[d] && seen.strides[d] == strides[d];
  }
  functions_.delete_tensor_object(object);
  PyErr_Clear();
  if (holds) {
    find_place(probe, impl);
    find_sign(probe, impl);
    find_gradient(probe, impl);
    find_wrap(probe, impl);
  }
  return holds;
}

void Torch::disconnect() {
  for (PyObject* object :
       {tensor_type_, parameter_type_, wrap_, is_neg_, cdata_name_, requires_grad_name_}) {
    Py_XDECREF(object);
  }
}

void Torch::find_place(PyObject* probe, const void* impl) {
  // Behind a Python object's own two words; its type says how much there is.
  void* const* words = reinterpret_cast<void* const*>(probe);
  for (int place = 2; place < 5 && place_ == 0; ++place) {
    if (words[place] == impl) place_ = place;
  }
}

void Torch::find_sign(PyObject* probe, void* impl) {
  // A function of C++, which may be missing: then Python's method is asked, which takes ten times
  // as long. What it answers is tried on a tensor that is negated and on one that is not.
  bool (*found)(const void*) = nullptr;
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr || !look_up(library, "_ZN2at6native6is_negERKNS_6TensorE", &found)) {
    return;
  }
  PyObject* negated = PyObject_CallMethod(probe, "_neg_view", nullptr);
  void* other = nullptr;
  if (negated != nullptr && handle_of(negated, &other) && found(&other) && !found(&impl)) {
    negated_ = found;
  }
  Py_XDECREF(negated);
  PyErr_Clear();
}

void Torch::find_gradient(PyObject* probe, const void* impl) {
  bool (*found)(const void*) = nullptr;
  void* library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr || !look_up(library, "_ZNK3c1010TensorImpl13requires_gradEv", &found)) {
    return;
  }
  PyObject* other = PyObject_CallMethod(probe, "detach", nullptr);
  PyObject* wanting =
      other == nullptr ? nullptr : PyObject_CallMethod(other, "requires_grad_", nullptr);
  void* asked = nullptr;
  if (wanting != nullptr && handle_of(wanting, &asked) && found(asked) && !found(impl)) {
    requires_grad_ = found;
  }
  Py_XDECREF(wanting);
  Py_XDECREF(other);
  PyErr_Clear();
}

void Torch::find_wrap(PyObject* probe, const void* impl) {
  PyObject* (*found)(const void*) = nullptr;
  void* library = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr || !look_up(library, "_Z16THPVariable_WrapRKN2at10TensorBaseE", &found)) {
    return;
  }
  // A tensor that Python has already is given as it is.
  PyObject* same = found(&impl);
  if (same == probe) python_of_ = found;
  Py_XDECREF(same);
  PyErr_Clear();
}

bool Torch::is_positive(PyObject* object, void** impl) const {
  if (negated_ != nullptr) return !negated_(impl);
  PyObject* negated = PyObject_CallFunctionObjArgs(is_neg_, object, nullptr);
  if (negated == nullptr) return false;
  const bool positive = negated == Py_False;
  Py_DECREF(negated);
  return positive;
}

bool Torch::is_without_gradient(PyObject* object, const void* impl) const {
  if (!functions_.grad_mode_is_enabled()) return true;
  return requires_grad_ != nullptr ? !requires_grad_(impl)
                                   : is_false(object, requires_grad_name_) == 1;
}

bool Torch::is_strided_class(const void* impl) const {
  return *static_cast<const void* const*>(impl) == strided_class_;
}

bool Torch::handle_of(PyObject* object, void** impl) const {
  if (place_ != 0) {
    *impl = reinterpret_cast<void**>(object)[place_];
    return *impl != nullptr;
  }
  PyObject* number = PyObject_GetAttr(object, cdata_name_);
  if (number == nullptr) return false;
  *impl = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  return *impl != nullptr;
}

// The bytes of storage up to the end of the last element that sizes, strides and offset reach; -1
// where int64 does not hold them.
int64_t bytes_reached(const SeenTensor& seen, int64_t offset, int64_t element) {
  int64_t last = offset;
  for (int64_t d = 0; d < seen.dim; ++d) {
    if (seen.sizes[d] == 0) return 0;
    int64_t step;
    if (__builtin_mul_overflow(seen.sizes[d] - 1, seen.strides[d], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return -1;
    }
  }
  return __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element, &last)
             ? -1
             : last;
}

bool Torch::see_memory(void** impl, int64_t dim, SeenTensor* out) const {
  StorageNeed need;
  return read_memory(impl, dim, out, &need) && out->dim <= kMaxTensorDim && need.is_met();
}

bool Torch::read_memory(void** impl, int64_t dim, SeenTensor* out, StorageNeed* need) const {
  int32_t layout, device;
  int64_t found;
  // What has no strides throws where it is asked for them, and torch would tell stderr.
  if (functions_.get_layout(impl, &layout) != 0 || layout != strided ||
      functions_.get_dim(impl, &found) != 0 || (found != dim && dim >= 0) ||
      functions_.get_device_type(impl, &device) != 0 || device != cpu) {
    return false;
  }
  int64_t *sizes, *strides;
  if (functions_.get_sizes(impl, &sizes) != 0 || functions_.get_strides(impl, &strides) != 0 ||
      functions_.get_dtype(impl, &out->dtype) != 0 ||
      functions_.get_data_ptr(impl, &out->data) != 0) {
    return false;
  }
  out->sizes = sizes;
  out->strides = strides;
  out->dim = found;
  const int place = dtype_index(out->dtype);
  int64_t offset;
  if (place < 0 || functions_.get_storage_size(impl, &need->found) != 0 ||
      functions_.get_storage_offset(impl, &offset) != 0) {
    return false;
  }
  need->expected = bytes_reached(*out, offset, kDTypeBytes[place]);
  // Storage that says how large it is and has no memory: fake tensors, and zeros that nobody wrote.
  if (out->data == nullptr && need->expected != 0) need->found = 0;
  return true;
}

bool Torch::address(PyObject* object, const char* name, int64_t bytes, void** out) const {
  const int is = PyObject_IsInstance(object, tensor_type_);
  if (is < 0) return false;
  void* impl;
  SeenTensor seen;
  StorageNeed need;
  if (is == 0 || !handle_of(object, &impl) || !read_memory(&impl, -1, &seen, &need)) {
    if (PyErr_Occurred() != nullptr) return false;
    PyErr_Format(PyExc_TypeError,
                 "%s: expected a dense tensor on cpu of a dtype that kernels read, got %R", name,
                 reinterpret_cast<PyObject*>(Py_TYPE(object)));
    return false;
  }
  if (!need.is_met()) {
    PyErr_Format(
        PyExc_ValueError,
        "%s: expected %lld bytes of storage, got %lld: its memory was freed, made smaller, "
        "or never there; give it memory again before the call",
        name, static_cast<long long>(need.expected), static_cast<long long>(need.found));
    return false;
  }
  int64_t elements = 1;
  for (int64_t d = 0; d < seen.dim; ++d) elements *= seen.sizes[d];
  const int64_t own = elements * kDTypeBytes[dtype_index(seen.dtype)];
  if (own < bytes) {
    PyErr_Format(PyExc_ValueError, "%s: expected a tensor of %lld bytes, got %lld", name,
                 static_cast<long long>(bytes), static_cast<long long>(own));
    return false;
  }
  *out = seen.data;
  return true;
}

bool Torch::see(PyObject* object, int64_t dim, SeenTensor* out) const {
  return see_plain(object, dim, out);
}

bool Torch::see(PyObject* object, SeenTensor* out) const { return see_plain(object, -1, out); }

bool Torch::see_plain(PyObject* object, int64_t dim, SeenTensor* out) const {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type != tensor_type_ && type != parameter_type_) return false;
  void* impl;
  // A tensor of zeros that are not stored has no memory either.
  return handle_of(object, &impl) && is_strided_class(impl) && is_without_gradient(object, impl) &&
         is_positive(object, &impl) && see_memory(&impl, dim, out) && out->data != nullptr;
}

bool Torch::see_integers(PyObject* object, int64_t dim, SeenTensor* out) const {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == tensor_type_ && see_stored(object, out) &&
         out->dim == dim;
}

bool Torch::see_stored(PyObject* object, SeenTensor* out) const {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type != tensor_type_ && type != parameter_type_) return false;
  void* impl;
  return handle_of(object, &impl) && is_strided_class(impl) && is_positive(object, &impl) &&
         see_memory(&impl, -1, out);
}

void* Torch::make(int64_t dim, const int64_t* sizes, int32_t dtype, void** data) const {
  int64_t strides[kMaxTensorDim];
  contiguous_strides(dim, sizes, strides);
  void* made = nullptr;
  if (functions_.empty_strided(dim, sizes, strides, dtype, cpu, 0, &made) != 0) return nullptr;
  if (functions_.get_data_ptr(made, data) == 0) return made;
  drop(made);
  return nullptr;
}

PyObject* Torch::give(void* made) const {
  if (python_of_ != nullptr) {
    PyObject* given = python_of_(made);
    drop(made);
    return given;
  }
  PyObject* capsule = PyCapsule_New(made, nullptr, nullptr);
  if (capsule == nullptr) {
    drop(made);
    return nullptr;
  }
  PyObject* given = PyObject_CallFunctionObjArgs(wrap_, capsule, nullptr);
  Py_DECREF(capsule);
  if (!wrap_takes_) drop(made);
  return given;
}

PyObject* Torch::give_pair(void* first, void* second) const {
  PyObject* one = give(first);
  PyObject* other = give(second);
  PyObject* pair = one == nullptr || other == nullptr ? nullptr : PyTuple_Pack(2, one, other);
  Py_XDECREF(one);
  Py_XDECREF(other);
  return pair;
}

void Torch::drop(void* made) const { functions_.delete_tensor_object(made); }

int Torch::dtype_index(int32_t dtype) const {
  for (int i = 0; i < kTensorDTypes; ++i) {
    if (dtypes_[i] == dtype) return i;
  }
  return -1;
}

int Torch::threads() const {
  uint32_t threads = 1;
  return functions_.get_num_threads(&threads) == 0 ? static_cast<int>(threads) : 1;
}

}  // namespace torchyard

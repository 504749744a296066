// Reads and makes torch's tensors without torch's headers, through the C functions that torch
// exports for code that was compiled apart from it.
//
// A handle of theirs is the address of a tensor object, which is one pointer: to what Python shows
// as `_cdata`. That is checked on a tensor before the first use; where it does not hold, or a
// function is missing, nothing here is used.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace torchyard {

// The dtypes that kernels may be given, by the names that torch has for them.
enum class TensorDType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};
constexpr int kTensorDTypes = 10;

// More dimensions than this are left to torch.
constexpr int64_t kMaxTensorDim = 8;

// The functions, each null until `find` found all; an error is another return value than 0.
struct TorchFunctions {
  int32_t (*get_dim)(void*, int64_t*);
  int32_t (*get_sizes)(void*, int64_t**);
  int32_t (*get_strides)(void*, int64_t**);
  int32_t (*get_dtype)(void*, int32_t*);
  int32_t (*get_device_type)(void*, int32_t*);
  int32_t (*get_layout)(void*, int32_t*);
  int32_t (*get_data_ptr)(void*, void**);
  int32_t (*get_storage_size)(void*, int64_t*);    // in bytes
  int32_t (*get_storage_offset)(void*, int64_t*);  // in elements
  int32_t (*empty_strided)(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t,
                           void**);
  int32_t (*delete_tensor_object)(void*);
  int32_t (*get_num_threads)(uint32_t*);
  bool (*grad_mode_is_enabled)();
  int32_t (*device_type_cpu)();
  int32_t (*layout_strided)();
  // Of the dtypes in TensorDType's order.
  int32_t (*dtypes[kTensorDTypes])();

  // Returns whether torch is loaded and has them all.
  bool find();
};

// What a dense tensor in this machine's memory is; sizes and strides belong to the tensor.
struct SeenTensor {
  const int64_t* sizes;
  const int64_t* strides;
  void* data;
  int32_t dtype;
  int64_t dim;
};

// How many bytes of storage a tensor's sizes, strides and offset reach, -1 where int64 does not
// hold them, and how many there are: fewer where somebody freed the storage or made it smaller.
struct StorageNeed {
  int64_t expected;
  int64_t found;

  bool is_met() const { return expected >= 0 && expected <= found; }
};

// The strides of a contiguous tensor.
void contiguous_strides(int64_t dim, const int64_t* sizes, int64_t* strides);

inline bool is_contiguous(const SeenTensor& x) {
  int64_t stride = 1;
  bool follows = true;
  for (int64_t d = x.dim - 1; d >= 0; --d) {
    if (x.sizes[d] == 0) return true;
    follows = follows && (x.sizes[d] == 1 || x.strides[d] == stride);
    stride *= x.sizes[d];
  }
  return follows;
}

// torch's numbers, functions, and the Python objects that reading a tensor needs.
class Torch {
 public:
  // Whether what is assumed of torch holds of `probe`, a float32 tensor of shape [2, 3, 5, 7], and
  // of `handle`, a capsule around a handle of it, which is taken over. Takes references to the type
  // of tensors, the type of parameters, and the function that makes a Python tensor of a capsule;
  // `takes` says whether that function takes the handle over. False without an exception where it
  // does not hold.
  bool connect(PyObject* probe, PyObject* handle, PyObject* tensor_type, PyObject* parameter_type,
               PyObject* wrap, bool takes);
  void disconnect();

  // Sees a tensor; false where it is not one that a kernel may be given as it is: a subclass, one
  // that wants a gradient, negated lazily, nested or sparse, with less memory than its elements
  // need, of another device, or of a dimension other than `dim`. With an exception set only where
  // Python's own code failed.
  bool see(PyObject* object, int64_t dim, SeenTensor* out) const;
  // The same of any dimension up to kMaxTensorDim.
  bool see(PyObject* object, SeenTensor* out) const;
  // Sees a tensor that needs no look at gradients, since it holds integers; it may be empty.
  bool see_integers(PyObject* object, int64_t dim, SeenTensor* out) const;

  // Sees a tensor whatever its gradient; it may be empty.
  bool see_stored(PyObject* object, SeenTensor* out) const;

  // Gives the address of a dense tensor's first element, of any class; false with an exception set
  // that says `name` where its storage is smaller than its elements need, or it has fewer than
  // `bytes` bytes of elements.
  bool address(PyObject* object, const char* name, int64_t bytes, void** out) const;

  // Makes an uninitialised contiguous tensor of this machine's memory; null without an exception
  // where it cannot be had: then the call is left to torch, which tells so in its own words.
  void* make(int64_t dim, const int64_t* sizes, int32_t dtype, void** data) const;
  // Gives a tensor that `make` returned to Python.
  PyObject* give(void* made) const;
  // Gives two, as a tuple.
  PyObject* give_pair(void* first, void* second) const;
  void drop(void* made) const;

  int threads() const;

  // The place of torch's number in TensorDType; -1 where it is none of them.
  int dtype_index(int32_t dtype) const;
  int32_t dtype(TensorDType dtype) const { return dtypes_[static_cast<int>(dtype)]; }

  int32_t cpu, strided, float32, bfloat16, float16;

 private:
  bool handle_of(PyObject* object, void** impl) const;
  // Whether a tensor is of torch's own class of tensors with strides, as nested and sparse ones,
  // which have others, are not.
  bool is_strided_class(const void* impl) const;
  // Finds where tensors of Python keep what `_cdata` shows.
  void find_place(PyObject* probe, const void* impl);
  // Finds torch's own function that says whether a tensor is negated lazily.
  void find_sign(PyObject* probe, void* impl);
  // The same of whether it wants a gradient.
  void find_gradient(PyObject* probe, const void* impl);
  // The same of what makes a Python tensor.
  void find_wrap(PyObject* probe, const void* impl);
  // Whether a tensor is not negated lazily; false with an exception set where Python's code failed.
  bool is_positive(PyObject* object, void** impl) const;
  // Whether a tensor wants no gradient, or none is recorded; else as above.
  bool is_without_gradient(PyObject* object, const void* impl) const;
  // `dim` of -1: any. Every tensor whose memory a kernel is given comes through here; false also
  // where its storage is too small.
  bool see_memory(void** impl, int64_t dim, SeenTensor* out) const;
  // The same, which tells of the storage what is needed and found instead.
  bool read_memory(void** impl, int64_t dim, SeenTensor* out, StorageNeed* need) const;
  bool see_plain(PyObject* object, int64_t dim, SeenTensor* out) const;

  TorchFunctions functions_ = {};
  int32_t dtypes_[kTensorDTypes] = {};
  int place_ = 0;  // in words from the object's address; 0: not known, `_cdata` is asked
  PyObject* tensor_type_ = nullptr;
  PyObject* parameter_type_ = nullptr;
  PyObject* wrap_ = nullptr;
  bool wrap_takes_ = false;
  PyObject* is_neg_ = nullptr;                     // the method of the type
  bool (*negated_)(const void*) = nullptr;         // the same of a handle, or null
  bool (*requires_grad_)(const void*) = nullptr;   // of what a handle points at, or null
  PyObject* (*python_of_)(const void*) = nullptr;  // of a handle, or null: then `wrap_` is asked
  const void* strided_class_ = nullptr;
  PyObject* cdata_name_ = nullptr;
  PyObject* requires_grad_name_ = nullptr;
};

}  // namespace torchyard

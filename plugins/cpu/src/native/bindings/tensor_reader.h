// Reads torch's tensors, and makes new ones, without torch's headers.
//
// Sizes, strides and addresses come from the C functions of DLPack that torch.Tensor publishes.
// What DLPack does not tell comes from public methods: whether a gradient is wanted, whether a
// tensor is negated lazily, and how large its storage is.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

#include "bindings/dlpack.h"

namespace torchyard {

// The dtypes that kernels may be given, by torch's names.
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

// Tensors of more dimensions are left to torch's dispatcher.
constexpr int64_t kMaxTensorDim = 8;

// What a dense tensor in this machine's memory is; sizes and strides belong to the tensor.
struct TensorView {
  const int64_t* sizes;
  const int64_t* strides;
  void* data;
  TensorDType dtype;
  int64_t dim;
};

// The strides of a contiguous tensor.
void contiguous_strides(int64_t dim, const int64_t* sizes, int64_t* strides);

inline bool is_contiguous(const TensorView& x) {
  int64_t stride = 1;
  bool follows = true;
  for (int64_t d = x.dim - 1; d >= 0; --d) {
    if (x.sizes[d] == 0) return true;
    follows = follows && (x.sizes[d] == 1 || x.strides[d] == stride);
    stride *= x.sizes[d];
  }
  return follows;
}

// The bytes of all elements of a tensor.
int64_t view_bytes(const TensorView& view);

// The index in DType (base/dtype.h) of float32, bfloat16 or float16; -1 of another dtype.
inline int kernel_dtype(TensorDType dtype) {
  if (dtype == TensorDType::kFloat32) return 0;
  if (dtype == TensorDType::kBFloat16) return 1;
  return dtype == TensorDType::kFloat16 ? 2 : -1;
}

// A new tensor: a reference, and where its elements are.
struct NewTensor {
  PyObject* tensor;
  void* data;
};

// Functions that return a bool return false where a tensor cannot be read so, with an exception set
// only where Python code failed.
class TensorReader {
 public:
  // Whether torch has what is needed. `parts` is (torch.Tensor, torch.nn.Parameter,
  // torch.UntypedStorage, torch's dtypes in TensorDType's order, torch.is_grad_enabled,
  // torch.get_num_threads, torch.empty_strided, torch.empty_like); the references are kept for
  // good. -1 with an exception set where the argument is none of these.
  int connect(PyObject* parts);
  bool is_connected() const { return read_ != nullptr; }

  // Has to be called before the tensors of a call are read, by the thread that reads them: notes
  // whether gradients are recorded. False with an exception set.
  bool begin_call() const;

  // Reads a tensor that a kernel may be given as it is. False for one of a subclass, one that
  // requires a gradient while gradients are recorded, one that is lazily negated, part of a
  // transform, nested, sparse or quantised, one whose storage is smaller than its elements need, an
  // empty one, one on another device, and one of another dimension than `dim`.
  bool read(PyObject* object, int64_t dim, TensorView* out) const;
  // The same of any dimension up to kMaxTensorDim.
  bool read(PyObject* object, TensorView* out) const;
  // The same of a tensor of integers, which cannot require a gradient; it may be empty.
  bool read_integers(PyObject* object, int64_t dim, TensorView* out) const;
  // The same whether or not the tensor requires a gradient; it may be empty.
  bool read_constant(PyObject* object, TensorView* out) const;

  // Gives the address of a dense tensor's first element, of any class; false with an exception set
  // that names `name` where its storage is smaller than its elements need, or it has fewer than
  // `bytes` bytes of elements.
  bool address(PyObject* object, const char* name, int64_t bytes, void** out) const;

  // Makes a contiguous tensor without values; false with an exception set.
  //
  // By torch.empty_like of a pattern where one of these sizes was made before, else by
  // torch.empty_strided. torch.empty and new_empty take half as long again, and what DLPack's
  // allocator makes cannot be resized.
  bool make(int64_t dim, const int64_t* sizes, TensorDType dtype, NewTensor* out) const;

  int threads() const;

 private:
  struct Storage;

  bool read_plain(PyObject* object, int64_t dim, bool constant, TensorView* out) const;
  bool read_memory(PyObject* object, TensorView* out, Storage* storage) const;
  PyObject* new_tensor(int64_t dim, const int64_t* sizes, TensorDType dtype) const;
  PyObject* new_pattern(int64_t dim, const int64_t* sizes, TensorDType dtype) const;
  int is_true(PyObject* callable, PyObject* object) const;
  bool read_integer(PyObject* callable, PyObject* object, int64_t* out) const;

  int (*read_)(void*, dlpack::Tensor*) = nullptr;
  PyObject* tensor_type_ = nullptr;
  PyObject* parameter_type_ = nullptr;
  PyObject* is_neg_ = nullptr;
  PyObject* storage_of_ = nullptr;
  PyObject* storage_offset_ = nullptr;
  PyObject* storage_bytes_ = nullptr;
  PyObject* storage_resize_ = nullptr;
  PyObject* empty_strided_ = nullptr;
  PyObject* empty_like_ = nullptr;
  PyObject* keywords_[kTensorDTypes] = {};  // {"dtype": ...}
  PyObject* is_grad_enabled_ = nullptr;
  PyObject* get_num_threads_ = nullptr;
  PyObject* requires_grad_name_ = nullptr;

  // A tensor without memory, of which torch.empty_like makes tensors of its sizes: from it torch
  // reads neither tuples nor keywords. Null where tensors of these sizes were made once only.
  struct Pattern {
    int64_t dim = -1;
    int64_t sizes[kMaxTensorDim];
    TensorDType dtype;
    PyObject* tensor = nullptr;
  };
  // Each at the place that its sizes hash to. Guarded by the GIL.
  static constexpr int kPatterns = 64;
  mutable Pattern patterns_[kPatterns];
};

// The one of this process; is_connected() says whether it can be used.
TensorReader& tensor_reader();

// Adds `connect_torch` and `address` to the module; 0, or -1 with an exception set.
int add_tensor_reader(PyObject* module);

}  // namespace torchyard

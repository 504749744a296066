// The fast path of products with quantised weights, see torchyard_cpu/_native.pyi:
// quantised_fast_path.
#include "bindings/fast_path.h"

#include "bindings/arguments.h"
#include "bindings/quantised/sizes.h"
#include "bindings/request_cache.h"
#include "bindings/tensor_reader.h"
#include "quantised/quantised.h"

namespace torchyard {

namespace {

struct RequestKey {
  int64_t rows;
  int64_t bias;
};

constexpr int kParts = 3;  // codes, scales, zeros

struct Path {
  const QuantisedKernel* kernel;
  QuantisedArgs args;     // of every call
  int64_t bytes[kParts];  // that the kernel reads of the weight's tensors; 0 of those it does not
  TensorDType dtype;      // of x, bias and out
  RequestCache<RequestKey> requests;

  // try_call(x, weight's tensors, None, bias)
  PyObject* try_call(PyObject* const* argv, Py_ssize_t argc) {
    if (!takes_arguments(4, argc)) return nullptr;
    const TensorReader& reader = tensor_reader();
    TensorView x, bias;
    const bool biased = argv[3] != Py_None;
    if (!reader.read(argv[0], &x) || x.dtype != dtype || x.dim < 1 ||
        x.sizes[x.dim - 1] != args.depth || !is_contiguous(x) ||
        (biased && (!reader.read(argv[3], 1, &bias) || bias.dtype != dtype ||
                    bias.sizes[0] != args.columns || !is_contiguous(bias)))) {
      return not_computed();
    }
    QuantisedArgs call = args;
    call.rows = 1;
    for (int64_t d = 0; d + 1 < x.dim; ++d) call.rows *= x.sizes[d];
    if (!requests.contains({rounded(call.rows), biased}) || !read_weight(argv[1], &call)) {
      return not_computed();
    }
    int64_t sizes[kMaxTensorDim];
    for (int64_t d = 0; d < x.dim; ++d) sizes[d] = x.sizes[d];
    sizes[x.dim - 1] = args.columns;
    NewTensor out;
    if (!reader.make(x.dim, sizes, dtype, &out)) return without_outputs();
    call.x = x.data;
    call.x_stride = args.depth;
    call.bias = biased ? bias.data : nullptr;
    call.out = out.data;
    call.out_stride = args.columns;
    const int threads = reader.threads();
    bool done;
    Py_BEGIN_ALLOW_THREADS;
    done = quantised_linear(call, *kernel, threads);
    Py_END_ALLOW_THREADS;
    if (done) return out.tensor;
    Py_DECREF(out.tensor);
    return PyErr_NoMemory();
  }

  // enable((rows, whether there is a bias))
  PyObject* enable(PyObject* const* argv, Py_ssize_t argc) {
    RequestKey key;
    if (argc != 1) {
      PyErr_Format(PyExc_TypeError, "enable: expected 1 argument, got %zd", argc);
      return nullptr;
    }
    if (!read_request(argv[0], &key)) return nullptr;
    requests.add(key);
    Py_RETURN_NONE;
  }

  void clear() { requests.clear(); }
  void end() {}

 private:
  // Reads the weight's tensors, which may have been replaced since the last call.
  bool read_weight(PyObject* tensors, QuantisedArgs* call) const {
    if (!PyTuple_Check(tensors) || PyTuple_Size(tensors) != kParts) return false;
    void* data[kParts] = {};
    for (int i = 0; i < kParts; ++i) {
      TensorView part;
      if (bytes[i] == 0) continue;
      if (!tensor_reader().read_constant(PyTuple_GetItem(tensors, i), &part) ||
          !is_contiguous(part) || part.data == nullptr || view_bytes(part) < bytes[i]) {
        return false;
      }
      data[i] = part.data;
    }
    call->codes = static_cast<const uint8_t*>(data[0]);
    call->scales = data[1];
    call->zeros = static_cast<const uint8_t*>(data[2]);
    return true;
  }
};

// quantised_fast_path(kernel, sizes, bytes)
PyObject* quantised_fast_path(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 3) {
    PyErr_Format(PyExc_TypeError, "quantised_fast_path: expected 3 arguments, got %zd", argc);
    return nullptr;
  }
  Path* path = allocate_path<Path>();
  if (path == nullptr) return nullptr;
  path->args = {};
  path->kernel = read_kernel(argv[0], kQuantisedKernels, "quantised_kernels");
  if (path->kernel == nullptr || !read_quantised_sizes(argv[1], &path->args) ||
      !read_integers(argv[2], "bytes", kParts, path->bytes)) {
    return drop_path(path);
  }
  constexpr TensorDType kElements[] = {TensorDType::kFloat32, TensorDType::kBFloat16,
                                       TensorDType::kFloat16};
  path->dtype = kElements[static_cast<int>(path->args.element)];
  return make_fast_path(path);
}

PyMethodDef functions[] = {path_maker("quantised_fast_path", quantised_fast_path),
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_quantised_fast_path(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace torchyard

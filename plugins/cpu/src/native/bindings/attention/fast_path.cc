// The fast path of attention, see torchyard_cpu/_native.pyi: attention_fast_path.
#include "bindings/fast_path.h"

#include <cmath>
#include <cstring>

#include "attention/attention.h"
#include "attention/decode/decode.h"
#include "bindings/arguments.h"
#include "bindings/attention/scores.h"
#include "bindings/request_cache.h"
#include "bindings/tensor_reader.h"

namespace torchyard {

namespace {

// torchyard_attention.contract.AttentionRequest in words of eight bytes.
struct RequestKey {
  int64_t dtype;
  int64_t batches, query_heads, key_heads, query_rows, keys, head_dim, value_dim;
  int64_t mask;  // 0: none, 1: causal, 2: any other blocks
  int64_t block_rows, block_keys;
  int64_t lse;
};

// The kernels of one dtype.
struct Kernels {
  const ForwardKernel* forward;
  Tunables tunables;
  const DecodeKernel* decode;
  Tunables decode_tunables;
};

constexpr int kDTypes = 3;  // in DType's order

// The attributes of torchyard_attention.contract.MaskBlocks that are tensors, and the dimensions of
// each.
constexpr struct {
  const char* name;
  int64_t dim;
} kMaskTensors[] = {{"kv_num_blocks", 3},   {"kv_indices", 4}, {"full_kv_num_blocks", 3},
                    {"full_kv_indices", 4}, {"bits", 3},       {"first_partial", 3}};
constexpr int kMaskTensorCount = 6;
PyObject* mask_names[kMaskTensorCount];
PyObject* block_size_name;

// Whether a mask's tensors are contiguous ones of the dtypes that kernels read, and lists and bits
// have the shapes that go with the counts.
bool mask_shapes_fit(const TensorView* view, const int64_t* block_size) {
  constexpr TensorDType kDTypesOfMask[kMaskTensorCount] = {
      TensorDType::kInt32, TensorDType::kInt32, TensorDType::kInt32,
      TensorDType::kInt32, TensorDType::kUInt8, TensorDType::kInt64};
  for (int i = 0; i < kMaskTensorCount; ++i) {
    if (view[i].dtype != kDTypesOfMask[i] || !is_contiguous(view[i])) return false;
    for (int d = 0; i != 4 && d < 3; ++d) {
      if (view[i].sizes[d] != view[0].sizes[d]) return false;
    }
  }
  return view[4].sizes[1] == block_size[0] && view[4].sizes[2] == ceil_div(block_size[1], 8);
}

// Reads (blocks, lengths, causal) for a call of which the rest was read; false where it does not
// fit, or with an exception set.
bool read_path_mask(PyObject* tuple, const ForwardArgs& args, MaskBlocks* out,
                    RequestKey* request) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 3) {
    PyErr_SetString(PyExc_TypeError, "mask: expected None or (blocks, lengths, causal)");
    return false;
  }
  int64_t lengths[2], sizes[2];
  PyObject* blocks = PyTuple_GetItem(tuple, 0);
  if (!read_integers(PyTuple_GetItem(tuple, 1), "mask: lengths", 2, lengths)) return false;
  if (lengths[0] != args.query_rows || lengths[1] != args.keys) return false;
  PyObject* block_size = PyObject_GetAttr(blocks, block_size_name);
  if (block_size == nullptr) return false;
  const bool read = read_integers(block_size, "mask: block_size", 2, sizes);
  Py_DECREF(block_size);
  if (!read) return false;
  TensorView view[kMaskTensorCount];
  for (int i = 0; i < kMaskTensorCount; ++i) {
    PyObject* tensor = PyObject_GetAttr(blocks, mask_names[i]);
    if (tensor == nullptr) return false;
    // The blocks keep it alive.
    Py_DECREF(tensor);
    if (!tensor_reader().read_integers(tensor, kMaskTensors[i].dim, &view[i])) return false;
  }
  const int64_t* counts = view[0].sizes;
  if (sizes[0] < 1 || sizes[1] < 1 || (counts[0] != 1 && counts[0] != args.batches) ||
      (counts[1] != 1 && counts[1] != args.query_heads)) {
    return false;
  }
  request->mask = PyTuple_GetItem(tuple, 2) == Py_True ? 1 : 2;
  request->block_rows = sizes[0];
  request->block_keys = sizes[1];
  *out = {.block_rows = sizes[0],
          .block_keys = sizes[1],
          .row_blocks = ceil_div(args.query_rows, sizes[0]),
          .partial_width = view[1].sizes[3],
          .full_width = view[3].sizes[3],
          .batches = counts[0],
          .heads = counts[1],
          .partial_count = static_cast<const int32_t*>(view[0].data),
          .partial_index = static_cast<const int32_t*>(view[1].data),
          .full_count = static_cast<const int32_t*>(view[2].data),
          .full_index = static_cast<const int32_t*>(view[3].data),
          .bits = static_cast<const uint8_t*>(view[4].data),
          .first_partial = static_cast<const int64_t*>(view[5].data)};
  if (counts[2] != out->row_blocks || !mask_shapes_fit(view, sizes)) return false;
  out->bit_blocks = view[4].sizes[0];
  ForwardArgs with_mask = args;
  with_mask.mask = out;
  return mask_fault(with_mask).what == nullptr;
}

// Reads query, key and value; false where they do not fit, or with an exception set.
bool read_tensors(PyObject* const* argv, bool grouped, ForwardArgs* args, RequestKey* request) {
  const TensorReader& reader = tensor_reader();
  TensorView query, key, value;
  if (!reader.read(argv[0], 4, &query) || !reader.read(argv[1], 4, &key) ||
      !reader.read(argv[2], 4, &value)) {
    return false;
  }
  const int64_t *q = query.sizes, *k = key.sizes, *v = value.sizes;
  const int dtype = kernel_dtype(query.dtype);
  if (dtype < 0 || key.dtype != query.dtype || value.dtype != query.dtype || k[0] != q[0] ||
      k[3] != q[3] || v[0] != k[0] || v[1] != k[1] || v[2] != k[2] ||
      (k[1] != q[1] && (!grouped || q[1] % k[1] != 0))) {
    return false;
  }
  for (const TensorView& view : {query, key, value}) {
    if (view.strides[3] != 1 && view.sizes[3] != 1) return false;
  }
  const auto place = [](const TensorView& view) {
    return Strided{view.data, view.strides[0], view.strides[1], view.strides[2]};
  };
  *args = {.batches = q[0],
           .query_heads = q[1],
           .key_heads = k[1],
           .query_rows = q[2],
           .keys = k[2],
           .head_dim = q[3],
           .value_dim = v[3],
           .query = place(query),
           .key = place(key),
           .value = place(value),
           .out = {},
           .lse = nullptr,
           .max_scores = nullptr,
           .scale = 0.0,
           .mask = nullptr,
           .score = nullptr,
           .tunables = {}};
  *request = {dtype, rounded(q[0]), q[1], k[1], rounded(q[2]), rounded(k[2]), q[3], v[3], 0, 0, 0,
              0};
  return true;
}

bool read_scale(PyObject* object, int64_t head_dim, double* out) {
  if (object == Py_None) {
    *out = 1.0 / std::sqrt(static_cast<double>(head_dim));
    return true;
  }
  if (!PyFloat_Check(object) && !PyLong_CheckExact(object)) return false;
  *out = PyFloat_AsDouble(object);
  if (*out == -1.0 && PyErr_Occurred() != nullptr) {
    // A number that no float holds, which the checks of a call name.
    PyErr_Clear();
    return false;
  }
  return std::isfinite(*out);
}

Status run_kernel(const ForwardArgs& args, const Kernels& kernels, int threads) {
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = suits_decode(args) ? attention_decode(args, *kernels.decode, threads, false)
                              : attention_forward(args, *kernels.forward, threads, false);
  Py_END_ALLOW_THREADS;
  return status;
}

// Makes the outputs, runs the kernel, and returns out or (out, lse).
PyObject* compute(const Kernels& kernels, ForwardArgs* args, TensorDType dtype, bool with_lse) {
  const TensorReader& reader = tensor_reader();
  args->tunables = suits_decode(*args) ? kernels.decode_tunables : kernels.tunables;
  const int64_t sizes[] = {args->batches, args->query_heads, args->query_rows, args->value_dim};
  NewTensor out, lse = {};
  if (!reader.make(4, sizes, dtype, &out)) return without_outputs();
  const int64_t rows = args->query_rows * args->value_dim;
  args->out = {out.data, args->query_heads * rows, rows, args->value_dim};
  if (with_lse && !reader.make(3, sizes, TensorDType::kFloat32, &lse)) {
    Py_DECREF(out.tensor);
    return without_outputs();
  }
  args->lse = static_cast<float*>(lse.data);
  const Status status = run_kernel(*args, kernels, reader.threads());
  if (status == Status::kOk) {
    return with_lse ? Py_BuildValue("(NN)", out.tensor, lse.tensor) : out.tensor;
  }
  Py_DECREF(out.tensor);
  Py_XDECREF(lse.tensor);
  return status == Status::kIndexOutOfRange ? index_error(*args->score) : PyErr_NoMemory();
}

struct Path {
  Kernels kernels[kDTypes];
  RequestCache<RequestKey> requests;
  ScoreCache<RequestKey> scores;

  PyObject* try_call(PyObject* const* argv, Py_ssize_t argc) {
    if (!takes_arguments(8, argc)) return nullptr;
    ForwardArgs args;
    RequestKey request;
    MaskBlocks mask;
    PlacedScore score;
    const bool grouped = argv[5] == Py_True;
    const bool with_lse = argv[6] == Py_True;
    // Other values that count as these are refused where calls are checked.
    if ((!grouped && argv[5] != Py_False) || (!with_lse && argv[6] != Py_False)) Py_RETURN_NONE;
    if (!read_tensors(argv, grouped, &args, &request) ||
        !read_scale(argv[4], args.head_dim, &args.scale)) {
      return not_computed();
    }
    if (argv[3] != Py_None) {
      if (!read_path_mask(argv[3], args, &mask, &request)) return not_computed();
      args.mask = &mask;
    }
    request.lse = with_lse;
    if (argv[7] != Py_None) {
      if (!read_path_score(argv[7], args, request, &score)) return not_computed();
      args.score = &score.program;
    } else if (!requests.contains(request)) {
      return not_computed();
    }
    constexpr TensorDType kTensors[kDTypes] = {TensorDType::kFloat32, TensorDType::kBFloat16,
                                               TensorDType::kFloat16};
    return compute(kernels[request.dtype], &args, kTensors[request.dtype], with_lse);
  }

  // enable(request), or enable(request, text, range, captured, score, addresses)
  PyObject* enable(PyObject* const* argv, Py_ssize_t argc) {
    return argc == 6 ? enable_score(argv) : enable_request(&requests, argv, argc, kDTypes);
  }

  void clear() {
    requests.clear();
    scores.clear();
  }

  void end() { scores.clear(); }

 private:
  // Finds the program of (text, captured tensors) for a call of which the rest was read, and gives
  // it the addresses of its tensors; false where there is none, or with an exception set.
  bool read_path_score(PyObject* tuple, const ForwardArgs& args, const RequestKey& request,
                       PlacedScore* out) const {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 2) {
      PyErr_SetString(PyExc_TypeError, "score: expected None or (text, captured tensors)");
      return false;
    }
    CapturedViews captured;
    if (!read_captured(PyTuple_GetItem(tuple, 1), &captured)) return false;
    const int64_t sizes[] = {args.batches, args.query_rows, args.keys};
    const CachedScore<RequestKey>* found =
        scores.find(request, PyTuple_GetItem(tuple, 0), sizes, captured);
    if (found == nullptr) return false;
    found->place(captured, out);
    return true;
  }

  // Stores the program of a score.
  PyObject* enable_score(PyObject* const* argv) {
    RequestKey request;
    ScoreProgram program;
    const ScoreRange* range;
    const ScoreCaptured* captured;
    const ScoreAddress* addresses;
    int64_t ranges, captured_count, address_count;
    if (!read_request(argv[0], &request) || !read_records(argv[2], &range, &ranges) ||
        !read_records(argv[3], &captured, &captured_count) || !read_score(argv[4], &program) ||
        !read_records(argv[5], &addresses, &address_count)) {
      return nullptr;
    }
    int64_t steps = 0;
    for (const int64_t count : program.counts) steps += count;
    bool fits = request.dtype >= 0 && request.dtype < kDTypes && PyUnicode_Check(argv[1]) &&
                ranges == 1 && captured_count <= kMaxScoreCaptured && steps <= kMaxScoreSteps &&
                address_count <= steps;
    for (int64_t i = 0; fits && i < captured_count; ++i) {
      fits = captured[i].dim >= 0 && captured[i].dim <= kMaxTensorDim;
    }
    for (int64_t i = 0; fits && i < address_count; ++i) {
      fits = addresses[i].step >= 0 && addresses[i].step < steps && addresses[i].tensor >= 0 &&
             addresses[i].tensor < captured_count;
    }
    if (!fits) {
      PyErr_SetString(PyExc_ValueError, "enable: expected a program within the limits");
      return nullptr;
    }
    auto* made = CachedScore<RequestKey>::make({request, argv[1], *range, captured, captured_count,
                                                program, steps, addresses, address_count});
    if (made == nullptr) return PyErr_NoMemory();
    scores.add(made);
    Py_RETURN_NONE;
  }
};

// Reads (kernel, tunables, decode kernel, tunables).
bool read_kernels(PyObject* row, Kernels* out) {
  if (!PyTuple_Check(row) || PyTuple_Size(row) != 4) {
    PyErr_SetString(PyExc_TypeError, "kernels: expected tuples of 4");
    return false;
  }
  out->forward = read_kernel(PyTuple_GetItem(row, 0), kForwardKernels, "kernels");
  if (out->forward == nullptr || !read_tunables(PyTuple_GetItem(row, 1), &out->tunables)) {
    return false;
  }
  out->decode = read_kernel(PyTuple_GetItem(row, 2), kDecodeKernels, "decode_kernels");
  return out->decode != nullptr && read_tunables(PyTuple_GetItem(row, 3), &out->decode_tunables);
}

// attention_fast_path(kernels)
PyObject* attention_fast_path(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 1 || !PyTuple_Check(argv[0]) || PyTuple_Size(argv[0]) != kDTypes) {
    PyErr_SetString(PyExc_TypeError, "attention_fast_path: expected a tuple of 3 kernels");
    return nullptr;
  }
  Path* path = allocate_path<Path>();
  for (int i = 0; path != nullptr && i < kDTypes; ++i) {
    if (!read_kernels(PyTuple_GetItem(argv[0], i), &path->kernels[i])) return drop_path(path);
  }
  return path == nullptr ? nullptr : make_fast_path(path);
}

PyMethodDef functions[] = {path_maker("attention_fast_path", attention_fast_path),
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_attention_fast_path(PyObject* module) {
  for (int i = 0; i < kMaskTensorCount; ++i) {
    mask_names[i] = PyUnicode_InternFromString(kMaskTensors[i].name);
    if (mask_names[i] == nullptr) return -1;
  }
  block_size_name = PyUnicode_InternFromString("block_size");
  if (block_size_name == nullptr) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace torchyard

#include "bindings/direct.h"

#include <cmath>
#include <cstring>
#include <new>

#include "attention/attention.h"
#include "attention/decode.h"
#include "attention/dispatch.h"
#include "bindings/admitted.h"
#include "bindings/arguments.h"
#include "bindings/attention/scores.h"
#include "bindings/direct_type.h"
#include "bindings/torch_tensors.h"

namespace torchyard {

namespace {

// What torchyard_attention.contract.AttentionRequest says of a call that may be served here, in
// words of eight bytes: see bindings/admitted.h.
struct Asked {
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

struct Direct {
  PyObject_HEAD;
  Torch torch;
  Kernels kernels[kDTypes];
  Admitted<Asked> admitted;
  AdmittedScores<Asked> scores;
};

int dtype_index(const Torch& torch, int32_t dtype) {
  if (dtype == torch.float32) return 0;
  if (dtype == torch.bfloat16) return 1;
  return dtype == torch.float16 ? 2 : -1;
}

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
bool mask_shapes_fit(const Torch& torch, const SeenTensor* seen, const int64_t* block_size) {
  const int32_t int32 = torch.dtype(TensorDType::kInt32);
  const int32_t dtypes[kMaskTensorCount] = {int32,
                                            int32,
                                            int32,
                                            int32,
                                            torch.dtype(TensorDType::kUInt8),
                                            torch.dtype(TensorDType::kInt64)};
  for (int i = 0; i < kMaskTensorCount; ++i) {
    if (seen[i].dtype != dtypes[i] || !is_contiguous(seen[i])) return false;
    for (int d = 0; i != 4 && d < 3; ++d) {
      if (seen[i].sizes[d] != seen[0].sizes[d]) return false;
    }
  }
  return seen[4].sizes[1] == block_size[0] && seen[4].sizes[2] == ceil_div(block_size[1], 8);
}

// Reads (blocks, lengths, causal) for a call of which the rest was read; false where it is not one
// to be served, or with an exception set.
bool see_mask(const Torch& torch, PyObject* tuple, const ForwardArgs& args, MaskBlocks* out,
              Asked* asked) {
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
  SeenTensor seen[kMaskTensorCount];
  for (int i = 0; i < kMaskTensorCount; ++i) {
    PyObject* tensor = PyObject_GetAttr(blocks, mask_names[i]);
    if (tensor == nullptr) return false;
    // The blocks keep it alive.
    Py_DECREF(tensor);
    if (!torch.see_integers(tensor, kMaskTensors[i].dim, &seen[i])) return false;
  }
  const int64_t* counts = seen[0].sizes;
  if (sizes[0] < 1 || sizes[1] < 1 || (counts[0] != 1 && counts[0] != args.batches) ||
      (counts[1] != 1 && counts[1] != args.query_heads)) {
    return false;
  }
  asked->mask = PyTuple_GetItem(tuple, 2) == Py_True ? 1 : 2;
  asked->block_rows = sizes[0];
  asked->block_keys = sizes[1];
  *out = {.block_rows = sizes[0],
          .block_keys = sizes[1],
          .row_blocks = ceil_div(args.query_rows, sizes[0]),
          .partial_width = seen[1].sizes[3],
          .full_width = seen[3].sizes[3],
          .batches = counts[0],
          .heads = counts[1],
          .partial_count = static_cast<const int32_t*>(seen[0].data),
          .partial_index = static_cast<const int32_t*>(seen[1].data),
          .full_count = static_cast<const int32_t*>(seen[2].data),
          .full_index = static_cast<const int32_t*>(seen[3].data),
          .bits = static_cast<const uint8_t*>(seen[4].data),
          .first_partial = static_cast<const int64_t*>(seen[5].data)};
  if (counts[2] != out->row_blocks || !mask_shapes_fit(torch, seen, sizes)) return false;
  out->bit_blocks = seen[4].sizes[0];
  ForwardArgs with_mask = args;
  with_mask.mask = out;
  return mask_fault(with_mask).what == nullptr;
}

// Reads query, key and value; false where they are not to be served, or with an exception set.
bool see_tensors(const Torch& torch, PyObject* const* argv, bool grouped, ForwardArgs* args,
                 Asked* asked) {
  SeenTensor query, key, value;
  if (!torch.see(argv[0], 4, &query) || !torch.see(argv[1], 4, &key) ||
      !torch.see(argv[2], 4, &value)) {
    return false;
  }
  const int64_t *q = query.sizes, *k = key.sizes, *v = value.sizes;
  const int dtype = dtype_index(torch, query.dtype);
  if (dtype < 0 || key.dtype != query.dtype || value.dtype != query.dtype || k[0] != q[0] ||
      k[3] != q[3] || v[0] != k[0] || v[1] != k[1] || v[2] != k[2] ||
      (k[1] != q[1] && (!grouped || q[1] % k[1] != 0))) {
    return false;
  }
  for (const SeenTensor& seen : {query, key, value}) {
    if (seen.strides[3] != 1 && seen.sizes[3] != 1) return false;
  }
  const auto place = [](const SeenTensor& seen) {
    return Strided{seen.data, seen.strides[0], seen.strides[1], seen.strides[2]};
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
  *asked = {dtype, rounded(q[0]), q[1], k[1], rounded(q[2]), rounded(k[2]), q[3], v[3], 0, 0, 0, 0};
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

Status run_direct(const ForwardArgs& args, const Kernels& kernels, int threads) {
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = suits_decode(args) ? attention_decode(args, *kernels.decode, threads, false)
                              : attention_forward(args, *kernels.forward, threads, false);
  Py_END_ALLOW_THREADS;
  return status;
}

// Makes the outputs, runs the kernel, and returns out or (out, lse).
PyObject* compute(const Torch& torch, const Kernels& kernels, ForwardArgs* args, int32_t dtype,
                  bool with_lse) {
  args->tunables = suits_decode(*args) ? kernels.decode_tunables : kernels.tunables;
  const int64_t sizes[] = {args->batches, args->query_heads, args->query_rows, args->value_dim};
  void* data;
  void* out = torch.make(4, sizes, dtype, &data);
  if (out == nullptr) Py_RETURN_NONE;
  const int64_t rows = args->query_rows * args->value_dim;
  args->out = {data, args->query_heads * rows, rows, args->value_dim};
  void* lse = nullptr;
  if (with_lse) {
    lse = torch.make(3, sizes, torch.float32, &data);
    args->lse = static_cast<float*>(data);
  }
  if (with_lse && lse == nullptr) {
    torch.drop(out);
    Py_RETURN_NONE;
  }
  const Status status = run_direct(*args, kernels, torch.threads());
  if (status != Status::kOk) {
    torch.drop(out);
    if (lse != nullptr) torch.drop(lse);
    return status == Status::kIndexOutOfRange ? index_error(*args->score) : PyErr_NoMemory();
  }
  PyObject* given = torch.give(out);
  if (!with_lse) return given;
  PyObject* given_lse = torch.give(lse);
  if (given != nullptr && given_lse != nullptr) return Py_BuildValue("(NN)", given, given_lse);
  Py_XDECREF(given);
  Py_XDECREF(given_lse);
  return nullptr;
}

// Finds the program of (text, captured tensors) for a call of which the rest was read, and where
// its tensors lie; false where there is none, or with an exception set.
bool see_score(const Direct& direct, PyObject* tuple, const ForwardArgs& args, const Asked& asked,
               PlacedScore* out) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 2) {
    PyErr_SetString(PyExc_TypeError, "score: expected None or (text, captured tensors)");
    return false;
  }
  SeenCaptured captured;
  if (!see_captured(direct.torch, PyTuple_GetItem(tuple, 1), &captured)) return false;
  const int64_t sizes[] = {args.batches, args.query_rows, args.keys};
  const AdmittedScore<Asked>* found =
      direct.scores.find(asked, PyTuple_GetItem(tuple, 0), sizes, captured, direct.torch);
  if (found == nullptr) return false;
  found->place(captured, out);
  return true;
}

// Ends a call that is not served: null where an exception is set, else None.
PyObject* not_served() {
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

PyObject* serve(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 8) {
    PyErr_Format(PyExc_TypeError, "serve: expected 8 arguments, got %zd", argc);
    return nullptr;
  }
  Direct& direct = *reinterpret_cast<Direct*>(self);
  ForwardArgs args;
  Asked asked;
  MaskBlocks mask;
  PlacedScore score;
  const bool grouped = argv[5] == Py_True;
  const bool with_lse = argv[6] == Py_True;
  // What merely counts as one of them is refused where calls are checked.
  if ((!grouped && argv[5] != Py_False) || (!with_lse && argv[6] != Py_False)) Py_RETURN_NONE;
  if (!see_tensors(direct.torch, argv, grouped, &args, &asked) ||
      !read_scale(argv[4], args.head_dim, &args.scale)) {
    return not_served();
  }
  if (argv[3] != Py_None) {
    if (!see_mask(direct.torch, argv[3], args, &mask, &asked)) return not_served();
    args.mask = &mask;
  }
  asked.lse = with_lse;
  if (argv[7] != Py_None) {
    if (!see_score(direct, argv[7], args, asked, &score)) return not_served();
    args.score = &score.program;
  } else if (!direct.admitted.holds(asked)) {
    return not_served();
  }
  const int32_t dtypes[kDTypes] = {direct.torch.float32, direct.torch.bfloat16,
                                   direct.torch.float16};
  return compute(direct.torch, direct.kernels[asked.dtype], &args, dtypes[asked.dtype], with_lse);
}

PyObject* admit(PyObject* self, PyObject* tuple) {
  return admit_request<Direct, Asked>(self, tuple, kDTypes);
}

// admit_score(request, text, range, captured, score, addresses)
PyObject* admit_score(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 6) {
    PyErr_Format(PyExc_TypeError, "admit_score: expected 6 arguments, got %zd", argc);
    return nullptr;
  }
  Asked asked;
  ScoreProgram program;
  const ScoreRange* range;
  const ScoreCaptured* captured;
  const ScoreAddress* addresses;
  int64_t ranges, captured_count, address_count;
  if (!read_request(argv[0], &asked) || !read_records(argv[2], &range, &ranges) ||
      !read_records(argv[3], &captured, &captured_count) || !read_score(argv[4], &program) ||
      !read_records(argv[5], &addresses, &address_count)) {
    return nullptr;
  }
  int64_t steps = 0;
  for (const int64_t count : program.counts) steps += count;
  bool fits = asked.dtype >= 0 && asked.dtype < kDTypes && PyUnicode_Check(argv[1]) &&
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
    PyErr_SetString(PyExc_ValueError, "admit_score: expected a program within the limits");
    return nullptr;
  }
  auto* made = AdmittedScore<Asked>::make(
      {asked, argv[1], *range, captured, captured_count, program, steps, addresses, address_count});
  if (made == nullptr) return PyErr_NoMemory();
  reinterpret_cast<Direct*>(self)->scores.add(made);
  Py_RETURN_NONE;
}

void dealloc(PyObject* self) {
  reinterpret_cast<Direct*>(self)->scores.clear();
  end_direct<Direct>(self);
}

PyMethodDef direct_methods[] = {
    {"serve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(serve)), METH_FASTCALL,
     "Compute a call whose request was admitted; None for any other."},
    {"admit", admit, METH_O, "Serve calls that make this request from now on."},
    {"admit_score", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(admit_score)),
     METH_FASTCALL, "Serve calls that make this request with a score_mod from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot direct_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, direct_methods},
    {0, nullptr},
};

PyType_Spec direct_spec = {"torchyard_cpu._native.DirectForward", sizeof(Direct), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, direct_slots};

PyTypeObject* direct_type;

// Reads (kernel, tunables, decode kernel, tunables).
bool read_kernels(PyObject* row, Kernels* out) {
  if (!PyTuple_Check(row) || PyTuple_Size(row) != 4) {
    PyErr_SetString(PyExc_TypeError, "kernels: expected tuples of 4");
    return false;
  }
  out->forward = read_kernel(PyTuple_GetItem(row, 0), find_forward, "kernels");
  if (out->forward == nullptr || !read_tunables(PyTuple_GetItem(row, 1), &out->tunables)) {
    return false;
  }
  out->decode = read_kernel(PyTuple_GetItem(row, 2), find_decode, "decode_kernels");
  return out->decode != nullptr && read_tunables(PyTuple_GetItem(row, 3), &out->decode_tunables);
}

// direct_forward(kernels, probe, handle, tensor type, parameter type, wrap, takes)
PyObject* direct_forward(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 7) {
    PyErr_Format(PyExc_TypeError, "direct_forward: expected 7 arguments, got %zd", argc);
    return nullptr;
  }
  if (!PyTuple_Check(argv[0]) || PyTuple_Size(argv[0]) != kDTypes) {
    PyErr_SetString(PyExc_TypeError, "kernels: expected a tuple of 3");
    return nullptr;
  }
  Kernels kernels[kDTypes];
  for (int i = 0; i < kDTypes; ++i) {
    if (!read_kernels(PyTuple_GetItem(argv[0], i), &kernels[i])) return nullptr;
  }
  Direct* direct = PyObject_New(Direct, direct_type);
  if (direct == nullptr) return nullptr;
  new (&direct->torch) Torch();
  new (&direct->admitted) Admitted<Asked>();
  new (&direct->scores) AdmittedScores<Asked>();
  std::memcpy(direct->kernels, kernels, sizeof(kernels));
  if (direct->torch.connect(argv[1], argv[2], argv[3], argv[4], argv[5], argv[6] == Py_True)) {
    return reinterpret_cast<PyObject*>(direct);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(direct));
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"direct_forward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(direct_forward)),
     METH_FASTCALL, "Return a DirectForward, or None where torch lacks what it needs."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_attention_direct(PyObject* module) {
  for (int i = 0; i < kMaskTensorCount; ++i) {
    mask_names[i] = PyUnicode_InternFromString(kMaskTensors[i].name);
    if (mask_names[i] == nullptr) return -1;
  }
  block_size_name = PyUnicode_InternFromString("block_size");
  if (block_size_name == nullptr) return -1;
  return add_direct_type(module, &direct_spec, "DirectForward", functions, &direct_type);
}

}  // namespace torchyard

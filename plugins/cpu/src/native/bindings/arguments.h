// Reads the module's arguments: integers and tuples of them, checked against the contracts.
//
// Each function returns false, or null, with a Python exception set where an argument does not fit.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <initializer_list>

#include "attention/attention.h"
#include "attention/mask/mask.h"
#include "attention/tile/layout.h"

namespace torchyard {

// Reads a tuple of exactly `count` integers. `what` names the argument in the error.
inline bool read_integers(PyObject* tuple, const char* what, Py_ssize_t count, int64_t* out) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
    PyErr_Format(PyExc_TypeError, "%s: expected a tuple of %zd integers", what, count);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (out[i] == -1 && PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

template <class T>
T* pointer(int64_t address) {
  return reinterpret_cast<T*>(static_cast<intptr_t>(address));
}

inline bool read_dims(PyObject* tuple, ForwardArgs* args) {
  int64_t d[7];
  if (!read_integers(tuple, "dims", 7, d)) return false;
  for (const int64_t size : d) {
    if (size < 0) {
      PyErr_SetString(PyExc_ValueError, "dims: expected sizes of at least 0");
      return false;
    }
  }
  args->batches = d[0];
  args->query_heads = d[1];
  args->key_heads = d[2];
  args->query_rows = d[3];
  args->keys = d[4];
  args->head_dim = d[5];
  args->value_dim = d[6];
  if (d[1] != 0 && (d[2] == 0 || d[1] % d[2] != 0)) {
    PyErr_Format(PyExc_ValueError,
                 "dims: expected query heads to be a multiple of key heads, got %lld and %lld",
                 static_cast<long long>(d[1]), static_cast<long long>(d[2]));
    return false;
  }
  if (d[5] < 1 || d[5] > kMaxHeadDim || d[6] < 1 || d[6] > kMaxHeadDim) {
    PyErr_Format(PyExc_ValueError, "dims: expected head sizes of 1 to %d, got %lld and %lld",
                 kMaxHeadDim, static_cast<long long>(d[5]), static_cast<long long>(d[6]));
    return false;
  }
  return true;
}

inline bool read_tensor(PyObject* tuple, const char* what, Strided* out) {
  int64_t t[4];
  if (!read_integers(tuple, what, 4, t)) return false;
  *out = {pointer<const void>(t[0]), t[1], t[2], t[3]};
  return true;
}

inline bool read_mask(PyObject* tuple, const ForwardArgs& args, MaskBlocks* out) {
  int64_t m[13];
  if (!read_integers(tuple, "mask", 13, m)) return false;
  if (m[0] < 1 || m[1] < 1) {
    PyErr_Format(PyExc_ValueError, "mask: expected block sizes of at least 1, got %lld x %lld",
                 static_cast<long long>(m[0]), static_cast<long long>(m[1]));
    return false;
  }
  if ((m[2] != 1 && m[2] != args.batches) || (m[3] != 1 && m[3] != args.query_heads)) {
    PyErr_Format(PyExc_ValueError,
                 "mask: expected 1 or %lld batches and 1 or %lld heads, got %lld and %lld",
                 static_cast<long long>(args.batches), static_cast<long long>(args.query_heads),
                 static_cast<long long>(m[2]), static_cast<long long>(m[3]));
    return false;
  }
  out->block_rows = m[0];
  out->block_keys = m[1];
  out->row_blocks = ceil_div(args.query_rows, m[0]);
  out->batches = m[2];
  out->heads = m[3];
  out->partial_count = pointer<const int32_t>(m[4]);
  out->partial_index = pointer<const int32_t>(m[5]);
  out->full_count = pointer<const int32_t>(m[6]);
  out->full_index = pointer<const int32_t>(m[7]);
  out->bits = pointer<const uint8_t>(m[8]);
  out->first_partial = pointer<const int64_t>(m[9]);
  out->partial_width = m[10];
  out->full_width = m[11];
  out->bit_blocks = m[12];
  return true;
}

// Whether a mask's lists are within their bounds, once the call's sizes are known.
inline bool check_mask(const ForwardArgs& args) {
  if (args.mask == nullptr) return true;
  const MaskFault fault = mask_fault(args);
  if (fault.what == nullptr) return true;
  PyErr_Format(
      PyExc_ValueError,
      "block_mask: %s: expected values of 0 to %lld, got %lld; its tensors were written to "
      "after it was made: make a new mask instead",
      fault.what, static_cast<long long>(fault.most), static_cast<long long>(fault.value));
  return false;
}

const char* const kScoreOps[] = {
#define TORCHYARD_PROGRAM_OP(name) #name,
#include "programs/ops.inc"
#undef TORCHYARD_PROGRAM_OP
};
constexpr int64_t kScoreOpCount = sizeof(kScoreOps) / sizeof(kScoreOps[0]);

inline bool operand_fits(const ScoreProgram& program, int64_t operand, int64_t shape) {
  if (operand == kRawScore) return shape == kTile;
  return operand >= 0 && (operand & 3) <= shape && operand >> 2 < program.slots[operand & 3];
}

// `tuple` is (steps, counts, slots, result); `steps` stays borrowed from its bytes.
inline bool read_score(PyObject* tuple, ScoreProgram* out) {
  char* bytes;
  Py_ssize_t length;
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 4) {
    PyErr_SetString(PyExc_TypeError, "score: expected a tuple of 4");
    return false;
  }
  if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, 0), &bytes, &length) != 0) return false;
  if (!read_integers(PyTuple_GetItem(tuple, 1), "score: counts", 4, out->counts) ||
      !read_integers(PyTuple_GetItem(tuple, 2), "score: slots", 4, out->slots)) {
    return false;
  }
  out->result = PyLong_AsLongLong(PyTuple_GetItem(tuple, 3));
  if (out->result == -1 && PyErr_Occurred() != nullptr) return false;
  out->steps = reinterpret_cast<const ProgramStep*>(bytes);
  int64_t total = 0;
  bool fits = operand_fits(*out, out->result, kTile);
  for (int shape = 0; shape < kValueShapes; ++shape) {
    const bool within = out->counts[shape] >= 0 && out->slots[shape] >= 0 &&
                        out->counts[shape] <= kMaxProgramSteps &&
                        out->slots[shape] <= 2 * kMaxProgramSteps;
    fits = fits && within;
    total += within ? out->counts[shape] : 0;
  }
  fits = fits && length == total * static_cast<Py_ssize_t>(sizeof(ProgramStep));
  const ProgramStep* step = out->steps;
  for (int shape = 0; fits && shape < kValueShapes; ++shape) {
    for (int64_t i = 0; fits && i < out->counts[shape]; ++i, ++step) {
      const int64_t op = static_cast<int64_t>(step->op);
      fits = op >= 0 && op < kScoreOpCount && step->out >= 0 && step->out < out->slots[shape];
      // An operand that a step does not have is the raw score or one that fits, and is not read.
      for (const int64_t operand : {step->a, step->b, step->c}) {
        fits = fits && (operand == kRawScore || operand_fits(*out, operand, shape));
      }
    }
  }
  if (!fits) PyErr_SetString(PyExc_ValueError, "score: expected steps within counts and slots");
  return fits;
}

// Reads bytes as structs of int64 words; they stay borrowed.
template <class T>
inline bool read_records(PyObject* bytes, const T** out, int64_t* count) {
  char* data;
  Py_ssize_t length;
  if (PyBytes_AsStringAndSize(bytes, &data, &length) != 0) return false;
  *out = reinterpret_cast<const T*>(data);
  *count = length / static_cast<Py_ssize_t>(sizeof(T));
  return true;
}

// `tuple` is (slope, sites, tensors, apart); records stay borrowed from their bytes.
inline bool read_score_gradient(PyObject* tuple, const ScoreProgram& program, ScoreGradient* out) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 4) {
    PyErr_SetString(PyExc_TypeError, "score_gradient: expected a tuple of 4");
    return false;
  }
  int64_t apart[3];
  out->slope = PyLong_AsLongLong(PyTuple_GetItem(tuple, 0));
  if ((out->slope == -1 && PyErr_Occurred() != nullptr) ||
      !read_records(PyTuple_GetItem(tuple, 1), &out->sites, &out->site_count) ||
      !read_records(PyTuple_GetItem(tuple, 2), &out->tensors, &out->tensor_count) ||
      !read_integers(PyTuple_GetItem(tuple, 3), "score_gradient: apart", 3, apart)) {
    return false;
  }
  out->apart_by_batch = apart[0] != 0;
  out->apart_by_head = apart[1] != 0;
  out->apart_by_key = apart[2] != 0;
  bool fits = operand_fits(program, out->slope, kTile);
  for (int64_t i = 0; fits && i < out->site_count; ++i) {
    const ScoreSite& site = out->sites[i];
    const bool scattered = site.form == SiteForm::kScatter;
    const int64_t shape = site.offset & 3;
    fits = site.tensor >= 0 && site.tensor < out->tensor_count &&
           (scattered || site.form == SiteForm::kOne || site.form == SiteForm::kAffine) &&
           site.offset >= 0 && operand_fits(program, site.offset, kTile) &&
           scattered == (shape >= kColumn) && operand_fits(program, site.weight, kTile);
  }
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "score_gradient: expected sites within slots and tensors");
  }
  return fits;
}

inline PyObject* score_ops(PyObject*, PyObject*) {
  PyObject* names = PyTuple_New(static_cast<Py_ssize_t>(kScoreOpCount));
  if (names == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < static_cast<Py_ssize_t>(kScoreOpCount); ++i) {
    PyObject* name = PyUnicode_FromString(kScoreOps[i]);
    if (name == nullptr || PyTuple_SetItem(names, i, name) != 0) {
      Py_DECREF(names);
      return nullptr;
    }
  }
  return names;
}

// Says which index was out of range, in torch's words.
inline PyObject* index_error(const ScoreProgram& program) {
  const ProgramStep& step = program.steps[program.failure->step];
  return PyErr_Format(PyExc_IndexError,
                      "score_mod: index %lld is out of bounds for dimension %lld with size %lld",
                      static_cast<long long>(program.failure->value),
                      static_cast<long long>(step.data), static_cast<long long>(step.extra));
}

// Finds a kernel by its name and checks that this processor can run it; `listing` is the Python
// function that lists the names.
template <class Kernel>
const Kernel* read_kernel(PyObject* name, const KernelTable<Kernel>& table, const char* listing) {
  const char* text = PyUnicode_AsUTF8AndSize(name, nullptr);
  if (text == nullptr) return nullptr;
  const Kernel* kernel = table.find(text);
  if (kernel == nullptr) {
    PyErr_Format(PyExc_ValueError, "kernel: expected a name from %s(), got '%s'", listing, text);
    return nullptr;
  }
  static const FeatureSet features = detect_features();
  if ((kernel->required & ~features) != 0) {
    PyErr_Format(PyExc_RuntimeError, "kernel: '%s' needs instructions that this processor lacks",
                 text);
    return nullptr;
  }
  return kernel;
}

// Reads names of features; those that no kernel asks for are left out.
inline bool read_features(PyObject* names, FeatureSet* out) {
  PyObject* iterator = PyObject_GetIter(names);
  if (iterator == nullptr) return false;
  while (PyObject* item = PyIter_Next(iterator)) {
    const char* name = PyUnicode_AsUTF8AndSize(item, nullptr);
    if (name != nullptr) *out |= feature_from_name(name);
    Py_DECREF(item);
    if (name == nullptr) break;
  }
  Py_DECREF(iterator);
  return PyErr_Occurred() == nullptr;
}

inline bool read_threads(PyObject* number, int* out) {
  const long threads = PyLong_AsLong(number);
  if (threads == -1 && PyErr_Occurred() != nullptr) return false;
  constexpr long kMostThreads = 1024;
  if (threads < 1 || threads > kMostThreads) {
    PyErr_Format(PyExc_ValueError, "threads: expected 1 to %ld, got %ld", kMostThreads, threads);
    return false;
  }
  *out = static_cast<int>(threads);
  return true;
}

inline bool read_address(PyObject* number, float** out) {
  const long long address = PyLong_AsLongLong(number);
  if (address == -1 && PyErr_Occurred() != nullptr) return false;
  *out = pointer<float>(address);
  return true;
}

inline bool read_output(PyObject* tuple, const char* what, StridedOutput* out) {
  Strided place;
  if (!read_tensor(tuple, what, &place)) return false;
  *out = {const_cast<void*>(place.data), place.batch, place.head, place.row};
  return true;
}

// `tuple` is the members of Tunables in their order.
inline bool read_tunables(PyObject* tuple, Tunables* out) {
  int64_t t[4];
  if (!read_integers(tuple, "tunables", 4, t)) return false;
  constexpr int64_t kMost = int64_t{1} << 24;
  for (const int64_t value : t) {
    if (value < 1 || value > kMost) {
      PyErr_Format(PyExc_ValueError, "tunables: expected 1 to %lld, got %lld",
                   static_cast<long long>(kMost), static_cast<long long>(value));
      return false;
    }
  }
  if (t[1] % kPanelKeys != 0) {
    PyErr_Format(PyExc_ValueError, "tunables: keys_per_split: expected a multiple of %d, got %lld",
                 kPanelKeys, static_cast<long long>(t[1]));
    return false;
  }
  *out = {t[0], t[1], t[2], t[3]};
  return true;
}

// What every attention function is given after the kernel's name: dims, query, key, value, out,
// lse, scale, mask, tunables.
constexpr Py_ssize_t kCallArguments = 9;

// Reads them; `args->mask` is `mask` or null, `args->score` null.
inline bool read_call(PyObject* const* argv, ForwardArgs* args, MaskBlocks* mask) {
  if (!read_dims(argv[0], args) || !read_tensor(argv[1], "query", &args->query) ||
      !read_tensor(argv[2], "key", &args->key) || !read_tensor(argv[3], "value", &args->value) ||
      !read_output(argv[4], "out", &args->out) || !read_address(argv[5], &args->lse)) {
    return false;
  }
  args->scale = PyFloat_AsDouble(argv[6]);
  if (args->scale == -1.0 && PyErr_Occurred() != nullptr) return false;
  args->mask = nullptr;
  args->score = nullptr;
  args->max_scores = nullptr;
  if (!read_tunables(argv[8], &args->tunables)) return false;
  if (argv[7] == Py_None) return true;
  args->mask = mask;
  return read_mask(argv[7], *args, mask);
}

// Reads pages or None. With pages `args->keys` becomes the longest sequence's length. The table's
// numbers are checked, since a kernel makes addresses of them.
inline bool read_pages(PyObject* tuple, ForwardArgs* args, Pages* out) {
  if (tuple == Py_None) return true;
  int64_t p[5];
  if (!read_integers(tuple, "pages", 5, p)) return false;
  *out = {pointer<const int32_t>(p[0]), p[1], pointer<const int32_t>(p[2]), p[3]};
  if (out->width < 0 || out->page_keys < 1) {
    PyErr_SetString(PyExc_ValueError, "pages: expected a width of at least 0 and keys per page");
    return false;
  }
  args->keys = 0;
  for (int64_t b = 0; b < args->batches; ++b) {
    const int64_t length = out->lengths[b];
    if (length < 0 || length > out->width * out->page_keys) {
      PyErr_Format(PyExc_ValueError, "pages: expected lengths of 0 to %lld, got %lld",
                   static_cast<long long>(out->width * out->page_keys),
                   static_cast<long long>(length));
      return false;
    }
    for (int64_t i = 0; i < ceil_div(length, out->page_keys); ++i) {
      const int32_t page = out->table[b * out->width + i];
      if (page >= 0 && page < p[4]) continue;
      PyErr_Format(PyExc_ValueError, "pages: expected pages of 0 to %lld in the table, got %d",
                   static_cast<long long>(p[4] - 1), page);
      return false;
    }
    if (length > args->keys) args->keys = length;
  }
  args->pages = out;
  return true;
}

// What every attention function is given at the end: threads, poison.
struct RunArguments {
  int threads;
  bool poison;
};

inline bool read_run(PyObject* const* argv, RunArguments* out) {
  if (!read_threads(argv[0], &out->threads)) return false;
  const int poison = PyObject_IsTrue(argv[1]);
  out->poison = poison > 0;
  return poison >= 0;
}

}  // namespace torchyard

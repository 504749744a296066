// The score programs of repeated calls, and the calls that each was made for.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>

#include "bindings/arguments.h"
#include "bindings/request_cache.h"
#include "bindings/tensor_reader.h"

namespace torchyard {

constexpr int64_t kMaxScoreCaptured = 6;
constexpr int64_t kMaxScoreSteps = 64;

// What a program was made for of a captured tensor. `narrow`: its int64 elements are ones that
// int32 holds; of those with more than kLookedThrough elements it is not key.
struct ScoreCaptured {
  int64_t dtype;  // of TensorDType
  int64_t narrow;
  int64_t dim;
  int64_t sizes[kMaxTensorDim];
  int64_t strides[kMaxTensorDim];
};

// As torchyard_cpu/attention/_score_program.py has it.
constexpr int64_t kLookedThrough = int64_t{1} << 16;

// Of batches, query rows and keys, the least and the most that a program was made for.
struct ScoreRange {
  int64_t least[3];
  int64_t most[3];
};

// What a call captured.
struct CapturedViews {
  int64_t count;
  TensorView tensors[kMaxScoreCaptured];
};

// Whether int32 holds every element of an int64 tensor.
inline bool fits_narrow(const TensorView& view) {
  int64_t at[kMaxTensorDim] = {};
  const int64_t* data = static_cast<const int64_t*>(view.data);
  for (;;) {
    if (*data != static_cast<int32_t>(*data)) return false;
    int64_t d = view.dim - 1;
    for (; d >= 0; --d) {
      data += view.strides[d];
      if (++at[d] < view.sizes[d]) break;
      data -= view.strides[d] * view.sizes[d];
      at[d] = 0;
    }
    if (d < 0) return true;
  }
}

// Reads a tuple of tensors; false where a kernel cannot be given one, or with an exception set.
inline bool read_captured(PyObject* tuple, CapturedViews* out) {
  if (!PyTuple_Check(tuple)) {
    PyErr_SetString(PyExc_TypeError, "score: expected (text, captured tensors)");
    return false;
  }
  out->count = PyTuple_Size(tuple);
  if (out->count > kMaxScoreCaptured) return false;
  for (int64_t i = 0; i < out->count; ++i) {
    if (!tensor_reader().read(PyTuple_GetItem(tuple, i), &out->tensors[i])) return false;
    for (int64_t d = 0; d < out->tensors[i].dim; ++d) {
      if (out->tensors[i].sizes[d] < 1) return false;
    }
  }
  return true;
}

// A program in the making for a call: steps with the addresses of what the call captured.
struct PlacedScore {
  ProgramStep steps[kMaxScoreSteps];
  ScoreFailure failure;
  ScoreProgram program;
};

// The step that reads a captured tensor, and which one.
struct ScoreAddress {
  int64_t step, tensor;
};

// A program to store, with what its records say; all borrowed.
template <class RequestKey>
struct GivenScore {
  const RequestKey& key;
  PyObject* text;
  const ScoreRange& range;
  const ScoreCaptured* captured;
  int64_t captured_count;
  const ScoreProgram& program;
  int64_t steps;
  const ScoreAddress* addresses;
  int64_t address_count;
};

// A program and the calls that it was made for: those with the same key, within a range of
// sizes, with captured tensors of the same form.
template <class RequestKey>
class CachedScore {
 public:
  // Takes a reference to the text; null where memory is exhausted.
  static CachedScore* make(const GivenScore<RequestKey>& given) {
    CachedScore* made = static_cast<CachedScore*>(PyMem_Malloc(sizeof(CachedScore)));
    if (made == nullptr) return nullptr;
    made->key_ = given.key;
    Py_INCREF(given.text);
    made->text_ = given.text;
    made->range_ = given.range;
    made->captured_count_ = given.captured_count;
    made->program_ = given.program;
    made->step_count_ = given.steps;
    made->address_count_ = given.address_count;
    const auto copy = [](auto* to, const auto* from, int64_t count) {
      std::memcpy(to, from, sizeof(*to) * static_cast<size_t>(count));
    };
    copy(made->captured_, given.captured, given.captured_count);
    copy(made->steps_, given.program.steps, given.steps);
    copy(made->addresses_, given.addresses, given.address_count);
    return made;
  }

  static void end(CachedScore* score) {
    if (score == nullptr) return;
    Py_DECREF(score->text_);
    PyMem_Free(score);
  }

  bool fits(const RequestKey& key, PyObject* text, const int64_t* sizes,
            const CapturedViews& captured) const {
    if (text != text_ || std::memcmp(&key, &key_, sizeof(RequestKey)) != 0 ||
        captured.count != captured_count_) {
      return false;
    }
    for (int i = 0; i < 3; ++i) {
      if (sizes[i] < range_.least[i] || sizes[i] > range_.most[i]) return false;
    }
    for (int64_t i = 0; i < captured_count_; ++i) {
      if (!fits_captured(captured_[i], captured.tensors[i])) return false;
    }
    return true;
  }

  const RequestKey& key() const { return key_; }
  PyObject* text() const { return text_; }

  // Whether both were made for the same calls.
  bool same(const CachedScore& other) const {
    return text_ == other.text_ && std::memcmp(&key_, &other.key_, sizeof(RequestKey)) == 0 &&
           std::memcmp(&range_, &other.range_, sizeof(range_)) == 0 &&
           captured_count_ == other.captured_count_ &&
           std::memcmp(captured_, other.captured_,
                       sizeof(ScoreCaptured) * static_cast<size_t>(captured_count_)) == 0;
  }

  void place(const CapturedViews& captured, PlacedScore* out) const {
    std::memcpy(out->steps, steps_, sizeof(ProgramStep) * static_cast<size_t>(step_count_));
    for (int64_t i = 0; i < address_count_; ++i) {
      out->steps[addresses_[i].step].data = static_cast<int64_t>(
          reinterpret_cast<intptr_t>(captured.tensors[addresses_[i].tensor].data));
    }
    out->failure = {-1, 0};
    out->program = program_;
    out->program.steps = out->steps;
    out->program.failure = &out->failure;
  }

 private:
  static bool fits_captured(const ScoreCaptured& known, const TensorView& view) {
    if (view.dim != known.dim || static_cast<int64_t>(view.dtype) != known.dtype) return false;
    int64_t elements = 1;
    for (int64_t d = 0; d < view.dim; ++d) {
      if (view.sizes[d] != known.sizes[d] || view.strides[d] != known.strides[d]) return false;
      elements *= view.sizes[d];
    }
    if (known.dtype != static_cast<int64_t>(TensorDType::kInt64) || elements > kLookedThrough) {
      return true;
    }
    return fits_narrow(view) == (known.narrow != 0);
  }

  RequestKey key_;
  PyObject* text_;
  ScoreRange range_;
  int64_t captured_count_;
  ScoreCaptured captured_[kMaxScoreCaptured];
  ScoreProgram program_;
  int64_t step_count_;
  ProgramStep steps_[kMaxScoreSteps];
  int64_t address_count_;
  ScoreAddress addresses_[kMaxScoreSteps];
};

// As RequestCache, for calls with a program. One text is one object, see sys.intern.
template <class RequestKey>
class ScoreCache {
 public:
  const CachedScore<RequestKey>* find(const RequestKey& key, PyObject* text, const int64_t* sizes,
                                      const CapturedViews& captured) const {
    const uint64_t start = hash_of(key, text);
    for (uint64_t i = 0; i < kTries; ++i) {
      const CachedScore<RequestKey>* score = places_[(start + i) % kPlaces];
      if (score == nullptr) return nullptr;
      if (score->fits(key, text, sizes, captured)) return score;
    }
    return nullptr;
  }

  // Takes `score` over; who finds no place pushes another out.
  void add(CachedScore<RequestKey>* score) {
    const uint64_t start = hash_of(score->key(), score->text());
    uint64_t place = (start + next_++ % kTries) % kPlaces;
    for (uint64_t i = 0; i < kTries; ++i) {
      CachedScore<RequestKey>* other = places_[(start + i) % kPlaces];
      if (other == nullptr || other->same(*score)) {
        place = (start + i) % kPlaces;
        break;
      }
    }
    CachedScore<RequestKey>::end(places_[place]);
    places_[place] = score;
  }

  void clear() {
    for (CachedScore<RequestKey>*& score : places_) {
      CachedScore<RequestKey>::end(score);
      score = nullptr;
    }
  }

 private:
  static constexpr uint64_t kPlaces = 256;
  static constexpr uint64_t kTries = 8;

  static uint64_t hash_of(const RequestKey& key, PyObject* text) {
    return hash_words(key) ^ (reinterpret_cast<uintptr_t>(text) >> 4);
  }

  CachedScore<RequestKey>* places_[kPlaces] = {};
  uint64_t next_ = 0;
};

}  // namespace torchyard

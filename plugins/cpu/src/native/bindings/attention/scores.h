// The score programs that decided calls run, and for which calls each was made.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>

#include "bindings/admitted.h"
#include "bindings/arguments.h"
#include "bindings/torch_tensors.h"

namespace torchyard {

constexpr int64_t kMaxScoreCaptured = 6;
constexpr int64_t kMaxScoreSteps = 64;

// What a program was made for of a captured tensor. `narrow`: its int64 elements are ones that
// int32 holds; of those with more than kLookedThrough elements it is not asked.
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
struct SeenCaptured {
  int64_t count;
  SeenTensor tensors[kMaxScoreCaptured];
};

// Whether int32 holds every element of an int64 tensor.
inline bool fits_narrow(const SeenTensor& seen) {
  int64_t at[kMaxTensorDim] = {};
  const int64_t* data = static_cast<const int64_t*>(seen.data);
  for (;;) {
    if (*data != static_cast<int32_t>(*data)) return false;
    int64_t d = seen.dim - 1;
    for (; d >= 0; --d) {
      data += seen.strides[d];
      if (++at[d] < seen.sizes[d]) break;
      data -= seen.strides[d] * seen.sizes[d];
      at[d] = 0;
    }
    if (d < 0) return true;
  }
}

// Reads a tuple of tensors; false where one is not to be served, or with an exception set.
inline bool see_captured(const Torch& torch, PyObject* tuple, SeenCaptured* out) {
  if (!PyTuple_Check(tuple)) {
    PyErr_SetString(PyExc_TypeError, "score: expected (text, captured tensors)");
    return false;
  }
  out->count = PyTuple_Size(tuple);
  if (out->count > kMaxScoreCaptured) return false;
  for (int64_t i = 0; i < out->count; ++i) {
    if (!torch.see(PyTuple_GetItem(tuple, i), &out->tensors[i])) return false;
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

// A program that was admitted, with what its records say; all borrowed.
template <class Asked>
struct GivenScore {
  const Asked& asked;
  PyObject* text;
  const ScoreRange& range;
  const ScoreCaptured* captured;
  int64_t captured_count;
  const ScoreProgram& program;
  int64_t steps;
  const ScoreAddress* addresses;
  int64_t address_count;
};

// A program and the calls that it was made for: those that ask for the same, within a range of
// sizes, with captured tensors of the same form.
template <class Asked>
class AdmittedScore {
 public:
  // Takes a reference to the text; null where memory is exhausted.
  static AdmittedScore* make(const GivenScore<Asked>& given) {
    AdmittedScore* made = static_cast<AdmittedScore*>(PyMem_Malloc(sizeof(AdmittedScore)));
    if (made == nullptr) return nullptr;
    made->asked_ = given.asked;
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

  static void end(AdmittedScore* score) {
    if (score == nullptr) return;
    Py_DECREF(score->text_);
    PyMem_Free(score);
  }

  bool fits(const Asked& asked, PyObject* text, const int64_t* sizes, const SeenCaptured& captured,
            const Torch& torch) const {
    if (text != text_ || std::memcmp(&asked, &asked_, sizeof(Asked)) != 0 ||
        captured.count != captured_count_) {
      return false;
    }
    for (int i = 0; i < 3; ++i) {
      if (sizes[i] < range_.least[i] || sizes[i] > range_.most[i]) return false;
    }
    for (int64_t i = 0; i < captured_count_; ++i) {
      if (!fits_captured(captured_[i], captured.tensors[i], torch)) return false;
    }
    return true;
  }

  const Asked& asked() const { return asked_; }
  PyObject* text() const { return text_; }

  // Whether both were made for the same calls.
  bool same(const AdmittedScore& other) const {
    return text_ == other.text_ && std::memcmp(&asked_, &other.asked_, sizeof(Asked)) == 0 &&
           std::memcmp(&range_, &other.range_, sizeof(range_)) == 0 &&
           captured_count_ == other.captured_count_ &&
           std::memcmp(captured_, other.captured_,
                       sizeof(ScoreCaptured) * static_cast<size_t>(captured_count_)) == 0;
  }

  void place(const SeenCaptured& captured, PlacedScore* out) const {
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
  static bool fits_captured(const ScoreCaptured& known, const SeenTensor& seen,
                            const Torch& torch) {
    if (seen.dim != known.dim || torch.dtype_index(seen.dtype) != known.dtype) return false;
    int64_t elements = 1;
    for (int64_t d = 0; d < seen.dim; ++d) {
      if (seen.sizes[d] != known.sizes[d] || seen.strides[d] != known.strides[d]) return false;
      elements *= seen.sizes[d];
    }
    if (known.dtype != static_cast<int64_t>(TensorDType::kInt64) || elements > kLookedThrough) {
      return true;
    }
    return fits_narrow(seen) == (known.narrow != 0);
  }

  Asked asked_;
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

// As Admitted, for calls with a program. One text is one object, see sys.intern.
template <class Asked>
class AdmittedScores {
 public:
  const AdmittedScore<Asked>* find(const Asked& asked, PyObject* text, const int64_t* sizes,
                                   const SeenCaptured& captured, const Torch& torch) const {
    const uint64_t start = hash_of(asked, text);
    for (uint64_t i = 0; i < kTries; ++i) {
      const AdmittedScore<Asked>* score = places_[(start + i) % kPlaces];
      if (score == nullptr) return nullptr;
      if (score->fits(asked, text, sizes, captured, torch)) return score;
    }
    return nullptr;
  }

  // Takes `score` over; who finds no place pushes another out.
  void add(AdmittedScore<Asked>* score) {
    const uint64_t start = hash_of(score->asked(), score->text());
    uint64_t place = (start + next_++ % kTries) % kPlaces;
    for (uint64_t i = 0; i < kTries; ++i) {
      AdmittedScore<Asked>* other = places_[(start + i) % kPlaces];
      if (other == nullptr || other->same(*score)) {
        place = (start + i) % kPlaces;
        break;
      }
    }
    AdmittedScore<Asked>::end(places_[place]);
    places_[place] = score;
  }

  void clear() {
    for (AdmittedScore<Asked>*& score : places_) {
      AdmittedScore<Asked>::end(score);
      score = nullptr;
    }
  }

 private:
  static constexpr uint64_t kPlaces = 256;
  static constexpr uint64_t kTries = 8;

  static uint64_t hash_of(const Asked& asked, PyObject* text) {
    return hash_words(asked) ^ (reinterpret_cast<uintptr_t>(text) >> 4);
  }

  AdmittedScore<Asked>* places_[kPlaces] = {};
  uint64_t next_ = 0;
};

}  // namespace torchyard

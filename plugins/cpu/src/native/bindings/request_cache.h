// The requests whose calls a fast path computes.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>

#include "bindings/arguments.h"

namespace torchyard {

// Requests round sizes that grow with a sequence in the same way. The largest size, whose power of
// two int64 does not hold, is in no request.
inline int64_t rounded(int64_t size) {
  if (size > int64_t{1} << 62) return size;
  int64_t power = 32;
  while (power < size) power *= 2;
  return size <= 16 ? size : power;
}

template <class RequestKey>
uint64_t hash_words(const RequestKey& key) {
  static_assert(sizeof(RequestKey) % 8 == 0, "words of eight bytes");
  uint64_t words[sizeof(RequestKey) / 8];
  std::memcpy(words, &key, sizeof(RequestKey));
  uint64_t hash = 0;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

// Reads a key from a tuple of its words; false with an exception set.
template <class RequestKey>
bool read_request(PyObject* tuple, RequestKey* out) {
  constexpr Py_ssize_t kWords = sizeof(RequestKey) / 8;
  int64_t words[kWords];
  if (!read_integers(tuple, "request", kWords, words)) return false;
  std::memcpy(out, words, sizeof(RequestKey));
  return true;
}

// A table of keys, which consist of words of eight bytes and are compared as memory. A request that
// finds no place replaces another one, which the registry decides again.
template <class RequestKey>
class RequestCache {
 public:
  bool contains(const RequestKey& key) const {
    const uint64_t start = hash_words(key);
    for (uint64_t i = 0; i < kTries; ++i) {
      const Place& place = places_[(start + i) % kPlaces];
      if (!place.taken) return false;
      if (std::memcmp(&place.key, &key, sizeof(RequestKey)) == 0) return true;
    }
    return false;
  }

  void add(const RequestKey& key) {
    if (contains(key)) return;
    const uint64_t start = hash_words(key);
    for (uint64_t i = 0; i < kTries; ++i) {
      Place& place = places_[(start + i) % kPlaces];
      if (place.taken) continue;
      place = {key, true};
      return;
    }
    places_[start % kPlaces] = {key, true};
  }

  void clear() {
    for (Place& place : places_) place.taken = false;
  }

 private:
  static constexpr uint64_t kPlaces = 512;
  static constexpr uint64_t kTries = 8;

  struct Place {
    RequestKey key;
    bool taken;
  };

  Place places_[kPlaces] = {};
};

// Adds the request of `enable(request)` to a cache; its dtype is one of the first `dtypes`. Null
// with an exception set where it is none.
template <class RequestKey>
PyObject* enable_request(RequestCache<RequestKey>* requests, PyObject* const* argv, Py_ssize_t argc,
                         int64_t dtypes) {
  RequestKey key;
  if (argc != 1) {
    PyErr_Format(PyExc_TypeError, "enable: expected 1 argument, got %zd", argc);
    return nullptr;
  }
  if (!read_request(argv[0], &key)) return nullptr;
  if (key.dtype < 0 || key.dtype >= dtypes) {
    PyErr_SetString(PyExc_ValueError, "request: expected a dtype that has kernels");
    return nullptr;
  }
  requests->add(key);
  Py_RETURN_NONE;
}

}  // namespace torchyard

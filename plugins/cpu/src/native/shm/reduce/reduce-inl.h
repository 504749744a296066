// Reductions written once for all instruction sets: included by one translation unit per set.
//
// `Isa` is a struct of simd/; its load_first and store_first widen and round halves. Everything
// else is loops that the compiler vectorises with the unit's flags.
#pragma once

#include <cstring>

#include "shm/reduce/reduce.h"
#include "simd/element.h"

namespace torchyard::shm {
namespace {

// Elements per turn: what is between loading and storing stays in the first-level cache.
constexpr size_t kBlock = 1024;

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<double> = true;

template <class T>
struct Unsigned {
  using Type = T;
};
template <>
struct Unsigned<int8_t> {
  using Type = uint8_t;
};
template <>
struct Unsigned<int16_t> {
  using Type = uint16_t;
};
template <>
struct Unsigned<int32_t> {
  using Type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
  using Type = uint64_t;
};

template <Operation kOp, class T>
inline T combine(T a, T b) {
  // Signed overflow is undefined, and small types are promoted to a signed one.
  using U = typename Unsigned<T>::Type;
  if constexpr (kOp == Operation::kSum || kOp == Operation::kAverage) {
    if constexpr (kIsFloat<T>) return a + b;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else if constexpr (kOp == Operation::kProduct) {
    if constexpr (kIsFloat<T>) return a * b;
    if constexpr (sizeof(T) < 4) {
      return static_cast<T>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
    }
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else if constexpr (kOp == Operation::kLeast) {
    return (a < b || a != a) ? a : b;
  } else if constexpr (kOp == Operation::kGreatest) {
    return (a > b || a != a) ? a : b;
  } else if constexpr (kOp == Operation::kAnd) {
    return static_cast<T>(a & b);
  } else if constexpr (kOp == Operation::kOr) {
    return static_cast<T>(a | b);
  } else {
    return static_cast<T>(a ^ b);
  }
}

template <Operation kOp, class T>
inline void finish(T* values, size_t count, int many) {
  if constexpr (kOp == Operation::kAverage) {
    const T divisor = static_cast<T>(many);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(values[i] / divisor);
  }
}

// Arithmetic in the elements' own type.
template <Operation kOp, class T>
void reduce_plain(const void* const* sources, int many, size_t count, void* out, void* twin) {
  T block[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t size = count - start < kBlock ? count - start : kBlock;
    const T* first = static_cast<const T*>(sources[0]) + start;
    const T* second = static_cast<const T*>(sources[many > 1 ? 1 : 0]) + start;
    if (many > 1) {
      for (size_t i = 0; i < size; ++i) block[i] = combine<kOp, T>(first[i], second[i]);
    } else {
      std::memcpy(block, first, size * sizeof(T));
    }
    for (int source = 2; source < many; ++source) {
      const T* next = static_cast<const T*>(sources[source]) + start;
      for (size_t i = 0; i < size; ++i) block[i] = combine<kOp, T>(block[i], next[i]);
    }
    finish<kOp, T>(block, size, many);
    std::memcpy(static_cast<T*>(out) + start, block, size * sizeof(T));
    if (twin != nullptr) std::memcpy(static_cast<T*>(twin) + start, block, size * sizeof(T));
  }
}

// Arithmetic in float32, rounded once.
template <Operation kOp, class Isa, class Half>
void reduce_halves(const void* const* sources, int many, size_t count, void* out, void* twin) {
  constexpr size_t kLanes = static_cast<size_t>(Isa::kLanes);
  float block[kBlock];
  float next[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t size = count - start < kBlock ? count - start : kBlock;
    for (int source = 0; source < many; ++source) {
      const Half* halves = static_cast<const Half*>(sources[source]) + start;
      float* wide = source == 0 ? block : next;
      for (size_t i = 0; i < size; i += kLanes) {
        Isa::store(wide + i, Isa::load_first(halves + i, static_cast<int>(size - i)));
      }
      if (source == 0) continue;
      for (size_t i = 0; i < size; ++i) block[i] = combine<kOp, float>(block[i], next[i]);
    }
    finish<kOp, float>(block, size, many);
    Half* rounded = static_cast<Half*>(out) + start;
    for (size_t i = 0; i < size; i += kLanes) {
      Isa::store_first(rounded + i, Isa::load(block + i), static_cast<int>(size - i));
    }
    if (twin != nullptr) {
      std::memcpy(static_cast<Half*>(twin) + start, rounded, size * sizeof(Half));
    }
  }
}

template <Operation kOp, class Isa>
Reduction of_dtype(Dtype dtype) {
  constexpr bool kBitwise =
      kOp == Operation::kAnd || kOp == Operation::kOr || kOp == Operation::kXor;
  if constexpr (!kBitwise) {
    if (dtype == Dtype::kFloat32) return reduce_plain<kOp, float>;
    if (dtype == Dtype::kFloat64) return reduce_plain<kOp, double>;
    if (dtype == Dtype::kFloat16) return reduce_halves<kOp, Isa, F16>;
    if (dtype == Dtype::kBFloat16) return reduce_halves<kOp, Isa, Bf16>;
  }
  switch (dtype) {
    case Dtype::kInt8:
      return reduce_plain<kOp, int8_t>;
    case Dtype::kUInt8:
      return reduce_plain<kOp, uint8_t>;
    case Dtype::kInt16:
      return reduce_plain<kOp, int16_t>;
    case Dtype::kUInt16:
      return reduce_plain<kOp, uint16_t>;
    case Dtype::kInt32:
      return reduce_plain<kOp, int32_t>;
    case Dtype::kUInt32:
      return reduce_plain<kOp, uint32_t>;
    case Dtype::kInt64:
      return reduce_plain<kOp, int64_t>;
    case Dtype::kUInt64:
      return reduce_plain<kOp, uint64_t>;
    default:
      return nullptr;
  }
}

// Booleans are bytes of 0 and 1.
inline Reduction of_bool(Operation operation) {
  switch (operation) {
    case Operation::kSum:
    case Operation::kGreatest:
    case Operation::kOr:
      return reduce_plain<Operation::kOr, uint8_t>;
    case Operation::kProduct:
    case Operation::kLeast:
    case Operation::kAnd:
      return reduce_plain<Operation::kAnd, uint8_t>;
    case Operation::kXor:
      return reduce_plain<Operation::kXor, uint8_t>;
    default:
      return nullptr;
  }
}

template <class Isa>
Reduction reduction(Dtype dtype, Operation operation) {
  if (dtype == Dtype::kBool) return of_bool(operation);
  switch (operation) {
    case Operation::kSum:
      return of_dtype<Operation::kSum, Isa>(dtype);
    case Operation::kAverage:
      return of_dtype<Operation::kAverage, Isa>(dtype);
    case Operation::kProduct:
      return of_dtype<Operation::kProduct, Isa>(dtype);
    case Operation::kLeast:
      return of_dtype<Operation::kLeast, Isa>(dtype);
    case Operation::kGreatest:
      return of_dtype<Operation::kGreatest, Isa>(dtype);
    case Operation::kAnd:
      return of_dtype<Operation::kAnd, Isa>(dtype);
    case Operation::kOr:
      return of_dtype<Operation::kOr, Isa>(dtype);
    default:
      return of_dtype<Operation::kXor, Isa>(dtype);
  }
}

}  // namespace
}  // namespace torchyard::shm

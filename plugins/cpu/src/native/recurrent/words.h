// How a recurrent kernel's weights and states become 32-bit words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "simd/format.h"

namespace torchyard {
namespace {

// States are floats; weights stay in their elements and are widened on the way into a register,
// which halves what has to come from the cache.
template <class IsaT, class ElementT>
struct WideWords {
  using Isa = IsaT;
  using Element = ElementT;
  using Operand = float;
  using Vec = typename Isa::Vec;
  static constexpr int kPair = 1;
  static constexpr int kLaneBytes = sizeof(Element);

  static TORCHYARD_INLINE Vec dot(Vec sum, Vec a, Vec b) { return Isa::fma(a, b, sum); }

  // Up to kLanes words from the first `n` elements at `p`.
  static TORCHYARD_INLINE Vec words(const Element* p, int n) { return Isa::load_first(p, n); }

  static TORCHYARD_INLINE Vec weights(const std::byte* p) {
    return Isa::load_first(reinterpret_cast<const Element*>(p), Isa::kLanes);
  }
  static TORCHYARD_INLINE void store_weights(std::byte* p, Vec words) {
    Isa::store_first(reinterpret_cast<Element*>(p), words, Isa::kLanes);
  }

  static TORCHYARD_INLINE Vec load(const Operand* p) { return Isa::load(p); }
  static TORCHYARD_INLINE void store(Operand* p, Vec v) { Isa::store(p, v); }
};

// States and weights are pairs of bfloat16, which the instruction set multiplies as they are.
template <class PairFormat>
struct PairWords {
  using Isa = typename PairFormat::Isa;
  using Element = Bf16;
  using Operand = Bf16;
  using Vec = typename Isa::Vec;
  static constexpr int kPair = 2;
  static constexpr int kLaneBytes = 4;

  static TORCHYARD_INLINE Vec dot(Vec sum, Vec a, Vec b) { return PairFormat::dot(sum, a, b); }

  static TORCHYARD_INLINE Vec words(const Element* p, int n) { return PairFormat::words(p, n); }

  static TORCHYARD_INLINE Vec weights(const std::byte* p) { return Isa::load(p); }
  static TORCHYARD_INLINE void store_weights(std::byte* p, Vec words) { Isa::store(p, words); }

  static TORCHYARD_INLINE Vec load(const Operand* p) { return Isa::load_first(p, Isa::kLanes); }
  static TORCHYARD_INLINE void store(Operand* p, Vec v) { Isa::store_first(p, v, Isa::kLanes); }
};

// Rounds to the nearest element, ties to even.
template <class Isa, class Element>
TORCHYARD_INLINE typename Isa::Vec rounded(typename Isa::Vec v) {
  if constexpr (std::is_same_v<Element, float>) {
    return v;
  } else {
    Element elements[Isa::kLanes];
    Isa::store_first(elements, v, Isa::kLanes);
    return Isa::load_first(elements, Isa::kLanes);
  }
}

}  // namespace
}  // namespace torchyard

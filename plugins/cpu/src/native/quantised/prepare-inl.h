// Rows of activations as the kernels multiply them.
#pragma once

#include <cstdint>
#include <cstring>

#include "quantised/quantised.h"
#include "quantised/sums-inl.h"
#include "simd/element.h"

namespace torchyard {
namespace {

template <class Isa>
struct PrepareRows {
  using L = Lanes<Isa>;
  using Int = typename L::Int;
  using Vec = typename Isa::Vec;
  typedef int8_t Bytes __attribute__((vector_size(L::kCount)));
  // A row whose magnitudes are all below this is zeros: 127 over it would overflow.
  static constexpr float kLeastMagnitude = 0x1p-119f;

  static void run(const QuantisedArgs& args, QuantisedSum sum, const QuantisedRows& rows,
                  int64_t from, int64_t to) {
    switch (args.element) {
      case QuantisedElement::kFloat32:
        return run_of<float>(args, sum, rows, from, to);
      case QuantisedElement::kBFloat16:
        return run_of<Bf16>(args, sum, rows, from, to);
      case QuantisedElement::kFloat16:
        return run_of<F16>(args, sum, rows, from, to);
    }
  }

  template <class Element>
  static void run_of(const QuantisedArgs& args, QuantisedSum sum, const QuantisedRows& rows,
                     int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) {
      const Element* x = static_cast<const Element*>(args.x) + row * args.x_stride;
      const int64_t at = row - rows.first;
      std::byte* words = rows.words + at * rows.row_bytes;
      int32_t* sums = rows.sums + at * args.segments();
      switch (sum) {
        case QuantisedSum::kBytes:
          rows.scales[at] = bytes(args, x, reinterpret_cast<int8_t*>(words), rows.row_bytes, sums);
          break;
        case QuantisedSum::kFloats:
          floats(args, x, reinterpret_cast<float*>(words), rows.row_bytes, sums);
          break;
        case QuantisedSum::kPairs:
          // Pairs are chosen for bfloat16 alone.
          std::memset(words + args.depth * 2, 0,
                      static_cast<size_t>(rows.row_bytes - args.depth * 2));
          std::memcpy(words, x, static_cast<size_t>(args.depth) * 2);
          cross(words, rows.row_bytes);
          if (args.bits == 8) {
            rows.scales[at] = largest_magnitude(args, x) < kInfinityBits ? 1.0f : 0.0f;
          }
          if (args.zeros != nullptr) float_sums(args, x, sums);
          break;
      }
    }
  }

  template <class Element>
  static Vec elements(const Element* x, int64_t k, int64_t depth) {
    const int64_t left = depth - k;
    return Isa::load_first(x + k, left < Isa::kLanes ? static_cast<int>(left) : Isa::kLanes);
  }

  // Its bits: those of an infinity, or more, where x is not finite.
  template <class Element>
  static uint32_t largest_magnitude(const QuantisedArgs& args, const Element* x) {
    Vec greatest = Isa::zero();
    for (int64_t k = 0; k < args.depth; k += Isa::kLanes) {
      greatest = Isa::magnitude_bits_max(greatest, elements(x, k, args.depth));
    }
    return Isa::largest_bits(greatest);
  }

  template <class Element>
  static float bytes(const QuantisedArgs& args, const Element* x, int8_t* words, int64_t row_bytes,
                     int32_t* sums) {
    const uint32_t bits = largest_magnitude(args, x);
    float most;
    std::memcpy(&most, &bits, sizeof(most));
    const bool unusable = bits >= kInfinityBits;
    if (unusable || most < kLeastMagnitude) {
      std::memset(words, 0, static_cast<size_t>(row_bytes));
      std::memset(sums, 0, static_cast<size_t>(args.segments()) * sizeof(int32_t));
      return unusable ? __builtin_nanf("") : 0.0f;
    }
    const int64_t tail = args.depth / L::kCount * L::kCount;
    std::memset(words + tail, 0, static_cast<size_t>(row_bytes - tail));
    const Vec inverse = Isa::set1(127.0f / most);
    const Vec magic = Isa::set1(0x1.8p23f);
    const int64_t segment = args.segment();
    int64_t k = 0;
    for (int64_t s = 0; s < args.segments(); ++s) {
      const int64_t end = (s + 1) * segment < args.depth ? (s + 1) * segment : args.depth;
      Int total = {};
      for (; k < end; k += Isa::kLanes) {
        const Vec moved = Isa::fma(elements(x, k, args.depth), inverse, magic);
        const Int whole = L::bits(moved) - L::bits(magic);
        total += whole;
        L::store(words + k, __builtin_convertvector(whole, Bytes));
      }
      // Exact: a segment's sum is far below 2^24.
      sums[s] = static_cast<int32_t>(Isa::sum(__builtin_convertvector(total, Vec)));
    }
    return most / 127.0f;
  }

  // Lets the middle two of each four change places.
  static void cross(std::byte* words, int64_t row_bytes) {
    uint64_t* fours = reinterpret_cast<uint64_t*>(words);
    for (int64_t i = 0; i < row_bytes / 8; ++i) {
      const uint64_t x = fours[i];
      fours[i] = (x & 0xffff00000000ffffu) | (x & 0xffff0000u) << 16 | (x >> 16 & 0xffff0000u);
    }
  }

  template <class Element>
  static void floats(const QuantisedArgs& args, const Element* x, float* words, int64_t row_bytes,
                     int32_t* sums) {
    const int64_t tail = args.depth / L::kCount * L::kCount;
    std::memset(words + tail, 0, static_cast<size_t>(row_bytes - tail * 4));
    for (int64_t k = 0; k < args.depth; k += Isa::kLanes) {
      Isa::store(words + k, elements(x, k, args.depth));
    }
    if (args.zeros != nullptr) float_sums(args, x, sums);
  }

  template <class Element>
  static void float_sums(const QuantisedArgs& args, const Element* x, int32_t* sums) {
    const int64_t segment = args.segment();
    int64_t k = 0;
    for (int64_t s = 0; s < args.segments(); ++s) {
      const int64_t end = (s + 1) * segment < args.depth ? (s + 1) * segment : args.depth;
      Vec total = Isa::zero();
      for (; k < end; k += Isa::kLanes) total = Isa::add(total, elements(x, k, args.depth));
      const float sum = Isa::sum(total);
      std::memcpy(sums + s, &sum, sizeof(sum));
    }
  }
};

}  // namespace
}  // namespace torchyard

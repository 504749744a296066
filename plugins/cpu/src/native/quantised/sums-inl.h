// The product of a word of codes per column with a word of activations: bytes, floats or pairs.
//
// A sum has `Total`, the register that it accumulates in; `start`, what a segment begins with;
// `step`, which adds four codes of depth for each column and row; `floats`, the segment's sum over
// kWeight in float32; `row_sum`, the sum of a row's activations in a segment; `OfOneRow`, the sum
// for a row alone.
#pragma once

#include <cstdint>

#include "quantised/quantised.h"
#include "simd/lanes.h"
#if defined(__AVX512F__)
#include "simd/avx512.h"
#endif

#ifndef TORCHYARD_INLINE
#define TORCHYARD_INLINE inline __attribute__((always_inline))
#endif
#ifndef TORCHYARD_NOINLINE
#define TORCHYARD_NOINLINE __attribute__((noinline))
#endif

namespace torchyard {
namespace {

template <int kBits>
constexpr int kCentre = kBits == 8 ? 128 : 8;

// Codes of four k's in a word per column, as unsigned bytes. `half` says which word of a pair: two
// words of 4-bit codes lie in one.
template <class Isa, int kBits>
TORCHYARD_INLINE typename Lanes<Isa>::Int code_words(const uint8_t* at, int half) {
  using L = Lanes<Isa>;
  if (kBits == 8) {
    return L::template load<typename L::Int>(at + half * kQuantisedColumns * 4);
  }
  const auto both = L::template load<typename L::Bits>(at);
  return (typename L::Int)((half == 0 ? both : both >> 4) & 0x0f0f0f0fu);
}

// Products of bytes, summed in int32; `Dot` multiplies words of four.
//
// Codes are taken as they are, unsigned, and the centre times the sum of the activations is what
// the sum begins with.
template <class IsaT, class Dot>
struct ByteSum {
  using Isa = IsaT;
  using L = Lanes<Isa>;
  using Total = typename L::Int;
  using OfOneRow = ByteSum;
  static constexpr float kWeight = 1.0f;
  static constexpr int kWordsPerStep = 1;

  template <int kBits>
  static TORCHYARD_INLINE Total start(const int32_t* sum) {
    const Total none = {};
    return none - kCentre<kBits> * *sum;
  }
  template <int kBits, int kRows, int kVectors>
  static TORCHYARD_INLINE void step(Total (&total)[kRows][kVectors], const uint8_t* at, int half,
                                    const uint32_t* x, int64_t x_stride) {
    Total codes[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      codes[v] = code_words<Isa, kBits>(at + v * Isa::kLanes * 4, half);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const typename Dot::Word word = Dot::template broadcast<kBits>(x + r * x_stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        total[r][v] = Dot::template dot<kBits>(total[r][v], codes[v], word);
      }
    }
  }
  static TORCHYARD_INLINE typename Isa::Vec floats(Total total) {
    return __builtin_convertvector(total, typename Isa::Vec);
  }
  static float row_sum(const int32_t* sum) { return static_cast<float>(*sum); }
};

// 2^24 times what a code stands for, as float32: moved to the top of its word a byte is converted
// there, which costs no shift back and is exact.
template <class Isa, int kBits>
struct CodeFloats {
  using L = Lanes<Isa>;

  // What `value` takes four codes of a column from. A nibble plus 0x78 has its top bit set from 8
  // on: that flipped, it is the nibble less 8.
  static TORCHYARD_INLINE typename L::Int load(const uint8_t* at, int half) {
    const auto codes = (typename L::Bits)code_words<Isa, kBits>(at, half);
    return (typename L::Int)((kBits == 8 ? codes : codes + 0x78787878u) ^ 0x80808080u);
  }
  static TORCHYARD_INLINE typename Isa::Vec value(typename L::Int codes, int j) {
    const auto moved = (typename L::Bits)codes << (24 - 8 * j);
    const auto whole = (typename L::Int)(j == 0 ? moved : moved & 0xff000000u);
    return __builtin_convertvector(whole, typename Isa::Vec);
  }
};

#if defined(__AVX512F__)
// A table of sixteen floats is looked up by the lowest four bits of a word.
template <>
struct CodeFloats<Avx512, 4> {
  using L = Lanes<Avx512>;

  static TORCHYARD_INLINE L::Int load(const uint8_t* at, int half) {
    const auto both = L::load<L::Bits>(at);
    return (L::Int)(half == 0 ? both : both >> 4);
  }
  static TORCHYARD_INLINE __m512 value(L::Int codes, int j) {
    const __m512 table =
        _mm512_mul_ps(_mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8),
                      _mm512_set1_ps(0x1p24f));
    return _mm512_permutexvar_ps((__m512i)((L::Bits)codes >> (8 * j)), table);
  }
};
#endif

// Products of float32.
template <class IsaT>
struct FloatSum {
  using Isa = IsaT;
  using L = Lanes<Isa>;
  using Total = typename Isa::Vec;
  using OfOneRow = FloatSum;
  static constexpr float kWeight = 0x1p-24f;
  static constexpr int kWordsPerStep = 4;

  template <int kBits>
  static TORCHYARD_INLINE Total start(const int32_t*) {
    return Isa::zero();
  }
  template <int kBits, int kRows, int kVectors>
  static TORCHYARD_INLINE void step(Total (&total)[kRows][kVectors], const uint8_t* at, int half,
                                    const uint32_t* x, int64_t x_stride) {
    typename L::Int codes[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      codes[v] = CodeFloats<Isa, kBits>::load(at + v * Isa::kLanes * 4, half);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      typename Isa::Vec value[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) value[v] = CodeFloats<Isa, kBits>::value(codes[v], j);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const typename Isa::Vec word = Isa::broadcast_word(x + r * x_stride + j);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) total[r][v] = Isa::fma(value[v], word, total[r][v]);
      }
    }
  }
  static TORCHYARD_INLINE typename Isa::Vec floats(Total total) { return total; }
  static float row_sum(const int32_t* sum) {
    float value;
    std::memcpy(&value, sum, sizeof(value));
    return value;
  }
};

#if defined(__AVX512BF16__)
// Products of pairs of bfloat16, which holds codes exactly: looked up by nibbles, two of depth at
// once. A word has the codes of k and k + 2 in the lower half of its halves, so that words of
// activations are x[k], x[k + 2] and x[k + 1], x[k + 3].
//
// Of 8 bits a code is 16 times its upper nibble less 8, and its lower nibble: activations have to
// be finite, since an infinity times a nibble of zero would make the sum NaN.
//
// A product waits for the one before it, and one row has registers for several sums: kParts.
template <int kParts>
struct PairSum {
  using Isa = Avx512;
  using OfOneRow = PairSum<2>;
  struct Total {
    __m512 part[kParts];
  };
  static constexpr float kWeight = 1.0f;
  static constexpr int kWordsPerStep = 2;

  template <int kBits>
  static TORCHYARD_INLINE Total start(const int32_t*) {
    return {};
  }
  template <int kBits, int kRows, int kVectors>
  static TORCHYARD_INLINE void step(Total (&total)[kRows][kVectors], const uint8_t* at, int half,
                                    const uint32_t* x, int64_t x_stride) {
    const uint8_t* const words = kBits == 4 ? at : at + half * kQuantisedColumns * 4;
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
#pragma GCC unroll 2
      for (int nibble = 0; nibble < kBits / 4; ++nibble) {
        const int moved = 8 * j + 4 * (kBits == 4 ? half : nibble);
        const __m512i table = kBits == 4    ? values<1, 8>()
                              : nibble == 0 ? values<1, 0>()
                                            : values<16, 8>();
        __m512bh value[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const __m512i codes = _mm512_srli_epi32(_mm512_loadu_si512(words + v * 64), moved);
          value[v] = (__m512bh)_mm512_permutexvar_epi16(codes, table);
        }
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          const __m512bh word = (__m512bh)_mm512_set1_epi32(static_cast<int>(x[r * x_stride + j]));
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            __m512& part = total[r][v].part[j % kParts];
            part = _mm512_dpbf16_ps(part, value[v], word);
          }
        }
      }
    }
  }
  static TORCHYARD_INLINE __m512 floats(const Total& total) {
    return kParts == 1 ? total.part[0] : _mm512_add_ps(total.part[0], total.part[1]);
  }
  static float row_sum(const int32_t* sum) { return FloatSum<Avx512>::row_sum(sum); }

 private:
  // bfloat16 of kFactor * (n - kLess) for each nibble n, twice: a look-up is by five bits, of which
  // the highest is the neighbour's.
  template <int kFactor, int kLess>
  static TORCHYARD_INLINE __m512i values() {
    const __m512 lanes = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512 found =
        _mm512_mul_ps(_mm512_sub_ps(lanes, _mm512_set1_ps(kLess)), _mm512_set1_ps(kFactor));
    return (__m512i)_mm512_cvtne2ps_pbh(found, found);
  }
};
#endif

}  // namespace
}  // namespace torchyard

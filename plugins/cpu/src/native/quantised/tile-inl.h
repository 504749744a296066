// A few rows of activations times a panel of codes.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/read_ahead.h"
#include "quantised/quantised.h"
#include "quantised/sums-inl.h"
#include "simd/element.h"

namespace torchyard {
namespace {

template <class SumT, int kBits>
struct QuantisedTile {
  using Sum = SumT;
  using Isa = typename Sum::Isa;
  using L = Lanes<Isa>;
  using Vec = typename Isa::Vec;
  static constexpr int kColumns = static_cast<int>(kQuantisedColumns);
  // Bytes of a panel for 8 of depth.
  static constexpr int64_t kOctetBytes = kColumns * kBits;

  // Scales of kLanes columns of a group.
  static TORCHYARD_INLINE Vec scale(const QuantisedArgs& args, int64_t group, int64_t at) {
    if (args.group == 0) return Isa::load(static_cast<const float*>(args.scales) + at);
    return Isa::load_first(static_cast<const Bf16*>(args.scales) + group * kColumns + at,
                           Isa::kLanes);
  }
  // How far the zeros of kLanes columns are from the centre.
  static TORCHYARD_INLINE Vec offset(const uint8_t* zeros) {
    float values[Isa::kLanes];
    for (int i = 0; i < Isa::kLanes; ++i) {
      values[i] = static_cast<float>(static_cast<int>(zeros[i]) - kCentre<kBits>);
    }
    return Isa::load(values);
  }

  // Adds to sums[kRows][64], from column `column` on, kVectors * kLanes of them.
  template <int kRows, int kVectors>
  static inline void run(const QuantisedArgs& args, const QuantisedRows& rows, int64_t row,
                         int64_t panel, int column, float* sums) {
    const uint8_t* codes = args.codes + panel * args.panel_bytes() + column * 4;
    const int64_t segments = args.segments();
    const int64_t octets = args.padded() / kQuantisedPad;
    const int64_t most = args.segment() / kQuantisedPad;
    const int64_t x_stride = rows.row_bytes / 4;
    const uint32_t* x = reinterpret_cast<const uint32_t*>(rows.words) + row * x_stride;
    const int32_t* row_sums = rows.sums + row * segments;
    const ReadAhead ahead(ReadAhead::by_parts(args.panel_bytes() * args.panels()), 3072);
    for (int64_t s = 0; s < segments; ++s) {
      typename Sum::Total total[kRows][kVectors];
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          total[r][v] = Sum::template start<kBits>(row_sums + r * segments + s);
        }
      }
      const int64_t begin = s * most;
      const int64_t count = begin + most < octets ? most : octets - begin;
      for (int64_t o = 0; o < count; ++o) {
        if (kRows == 1) {
#pragma GCC unroll 8
          for (int64_t b = 0; b < kOctetBytes; b += ReadAhead::kLine) {
            ahead.first_level(codes + b);
          }
        }
        Sum::template step<kBits>(total, codes, 0, x, x_stride);
        Sum::template step<kBits>(total, codes, 1, x + Sum::kWordsPerStep, x_stride);
        codes += kOctetBytes;
        x += 2 * Sum::kWordsPerStep;
      }
      add<kRows, kVectors>(args, total, s, panel, column, row_sums, sums);
    }
  }

  // Adds a segment's sums, scaled.
  template <int kRows, int kVectors>
  static TORCHYARD_INLINE void add(const QuantisedArgs& args,
                                   const typename Sum::Total (&total)[kRows][kVectors], int64_t s,
                                   int64_t panel, int column, const int32_t* row_sums,
                                   float* sums) {
    const int64_t segments = args.segments();
    const int64_t group = args.group == 0 ? panel : panel * args.groups() + s;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = column + v * Isa::kLanes;
      Vec weight = args.group == 0 ? scale(args, 0, group * kColumns + at) : scale(args, group, at);
      if (Sum::kWeight != 1.0f) weight = Isa::mul(weight, Isa::set1(Sum::kWeight));
      Vec shift = Isa::zero();
      if (args.zeros != nullptr) shift = offset(args.zeros + group * kColumns + at);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        Vec part = Sum::floats(total[r][v]);
        if (args.zeros != nullptr) {
          const float sum = Sum::row_sum(row_sums + r * segments + s) / Sum::kWeight;
          part = Isa::sub(part, Isa::mul(shift, Isa::set1(sum)));
        }
        float* place = sums + r * kColumns + at;
        Isa::store(place, Isa::fma(weight, part, Isa::load(place)));
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

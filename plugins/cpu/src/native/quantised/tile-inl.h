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

  // Scales of kLanes columns.
  static TORCHYARD_INLINE Vec scale(const QuantisedArgs& args, int64_t at) {
    if (args.group == 0) return Isa::load(static_cast<const float*>(args.scales) + at);
    return Isa::load_first(static_cast<const Bf16*>(args.scales) + at, Isa::kLanes);
  }
  // How far the zeros of kLanes columns are from the centre.
  static TORCHYARD_INLINE Vec offset(const uint8_t* zeros) {
    float values[Isa::kLanes];
    for (int i = 0; i < Isa::kLanes; ++i) {
      values[i] = static_cast<float>(static_cast<int>(zeros[i]) - kCentre<kBits>);
    }
    return Isa::load(values);
  }

  // Where a segment's scales and zeros lie, in rows of 64 columns, and what each row of activations
  // sums to in it.
  struct Segment {
    int64_t group;
    const int32_t* row_sums;
    int64_t row_stride;
  };

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
    Segment segment = {args.group == 0 ? panel : panel * segments, rows.sums + row * segments,
                       segments};
    const ReadAhead ahead(ReadAhead::by_parts(args.panel_bytes() * args.panels()), kAhead);
    const uint8_t* scales = static_cast<const uint8_t*>(args.scales);
    // Of groups: what belongs to the codes that are asked for.
    const int64_t scales_ahead = args.group == 0 ? 0 : kAhead / (args.group * kColumns * kBits / 8);
    for (int64_t begin = 0; begin < octets; begin += most) {
      typename Sum::Total total[kRows][kVectors];
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          total[r][v] = Sum::template start<kBits>(segment.row_sums + r * segments);
        }
      }
      int64_t count = begin + most < octets ? most : octets - begin;
      if (kRows == 1 && args.group != 0) {
        const uint8_t* at = scales + ((segment.group + scales_ahead) * kColumns + column) * 2;
#pragma GCC unroll 2
        for (int64_t b = 0; b < kVectors * Isa::kLanes * 2; b += ReadAhead::kLine) {
          __builtin_prefetch(at + b, 0, 3);
        }
      }
      for (; count >= kUnrolled; count -= kUnrolled) {
#pragma GCC unroll 4
        for (int o = 0; o < kUnrolled; ++o) {
          if (kRows == 1) {
#pragma GCC unroll 8
            for (int64_t b = 0; b < kOctetBytes; b += ReadAhead::kLine) {
              ahead.first_level(codes + b);
            }
          }
          octet(total, codes, x, x_stride);
          codes += kOctetBytes;
          x += 2 * Sum::kWordsPerStep;
        }
      }
      for (; count > 0; --count) {
        octet(total, codes, x, x_stride);
        codes += kOctetBytes;
        x += 2 * Sum::kWordsPerStep;
      }
      add<kRows, kVectors>(args, total, segment, column, sums);
      segment.group += args.group != 0;
      ++segment.row_sums;
    }
  }

  // Adds a segment's sums, scaled.
  template <int kRows, int kVectors>
  static TORCHYARD_INLINE void add(const QuantisedArgs& args,
                                   const typename Sum::Total (&total)[kRows][kVectors],
                                   const Segment& segment, int column, float* sums) {
    const int64_t first = segment.group * kColumns + column;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = v * Isa::kLanes;
      Vec weight = scale(args, first + at);
      if (Sum::kWeight != 1.0f) weight = Isa::mul(weight, Isa::set1(Sum::kWeight));
      Vec shift = Isa::zero();
      if (args.zeros != nullptr) shift = offset(args.zeros + first + at);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        Vec part = Sum::floats(total[r][v]);
        if (args.zeros != nullptr) {
          const float sum = Sum::row_sum(segment.row_sums + r * segment.row_stride) / Sum::kWeight;
          part = Isa::sub(part, Isa::mul(shift, Isa::set1(sum)));
        }
        float* place = sums + r * kColumns + column + at;
        Isa::store(place, Isa::fma(weight, part, Isa::load(place)));
      }
    }
  }

 private:
  // Bytes of codes: some 250 ns of what one core gets of the memory's speed.
  static constexpr int64_t kAhead = 8192;
  // As many octets as the smallest group has.
  static constexpr int kUnrolled = 4;

  template <int kRows, int kVectors>
  static TORCHYARD_INLINE void octet(typename Sum::Total (&total)[kRows][kVectors],
                                     const uint8_t* codes, const uint32_t* x, int64_t x_stride) {
    Sum::template step<kBits>(total, codes, 0, x, x_stride);
    Sum::template step<kBits>(total, codes, 1, x + Sum::kWordsPerStep, x_stride);
  }
};

}  // namespace
}  // namespace torchyard

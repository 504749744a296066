// A panel of outputs for all rows, and the table's row of an instruction set.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/isa/kernel_table.h"
#include "quantised/prepare-inl.h"
#include "quantised/quantised.h"
#include "quantised/tile-inl.h"

namespace torchyard {
namespace {

// Stores rows of 64 sums as outputs: times the scale of the row, plus bias.
template <class Isa, class Element>
inline void store_outputs(const QuantisedArgs& args, const QuantisedRows& rows, bool scaled,
                          int64_t row, int64_t count, int64_t panel, const float* sums) {
  using Vec = typename Isa::Vec;
  const int64_t first = panel * kQuantisedColumns;
  const Element* bias = static_cast<const Element*>(args.bias);
  for (int64_t r = row; r < row + count; ++r, sums += kQuantisedColumns) {
    Element* out = static_cast<Element*>(args.out) + (rows.first + r) * args.out_stride;
    const Vec scale = Isa::set1(scaled ? rows.scales[r] : 1.0f);
    for (int64_t c = 0; c < kQuantisedColumns; c += Isa::kLanes) {
      const int64_t left = args.columns - first - c;
      if (left <= 0) break;
      const int n = left < Isa::kLanes ? static_cast<int>(left) : Isa::kLanes;
      Vec value = Isa::mul(Isa::load(sums + c), scale);
      if (bias != nullptr) value = Isa::add(value, Isa::load_first(bias + first + c, n));
      Isa::store_first(out + first + c, value, n);
    }
  }
}

template <class Isa>
inline void store_panel(const QuantisedArgs& args, const QuantisedRows& rows, bool scaled,
                        int64_t row, int64_t count, int64_t panel, const float* sums) {
  switch (args.element) {
    case QuantisedElement::kFloat32:
      return store_outputs<Isa, float>(args, rows, scaled, row, count, panel, sums);
    case QuantisedElement::kBFloat16:
      return store_outputs<Isa, Bf16>(args, rows, scaled, row, count, panel, sums);
    case QuantisedElement::kFloat16:
      return store_outputs<Isa, F16>(args, rows, scaled, row, count, panel, sums);
  }
}

template <class Sum, int kBits>
struct Panel {
  using Isa = typename Sum::Isa;

  template <int kRows>
  static TORCHYARD_NOINLINE void tile(const QuantisedArgs& args, const QuantisedRows& rows,
                                      int64_t row, int64_t panel) {
    // One row has registers for all columns; codes are then read in the order of memory.
    constexpr int kAll = static_cast<int>(kQuantisedColumns) / Isa::kLanes;
    constexpr int kVectors = kRows == 1 ? (kAll < 8 ? kAll : 8) : Isa::kTileVectors;
    alignas(64) float sums[kRows * kQuantisedColumns] = {};
    for (int c = 0; c < kQuantisedColumns; c += kVectors * Isa::kLanes) {
      using Of = std::conditional_t<kRows == 1, typename Sum::OfOneRow, Sum>;
      QuantisedTile<Of, kBits>::template run<kRows, kVectors>(args, rows, row, panel, c, sums);
    }
    store_panel<Isa>(args, rows, args.bytes, row, kRows, panel, sums);
  }

  static void run(const QuantisedArgs& args, const QuantisedRows& rows, int64_t panel) {
    const int64_t count = rows.end - rows.first;
    int64_t row = 0;
    for (; row + 6 <= count; row += 6) tile<6>(args, rows, row, panel);
    if (row + 4 <= count) {
      tile<4>(args, rows, row, panel);
      row += 4;
    }
    if (row + 2 <= count) {
      tile<2>(args, rows, row, panel);
      row += 2;
    }
    if (row < count) tile<1>(args, rows, row, panel);
  }
};

// The functions of a kernel that multiplies bytes by `Dot`, and floats.
template <class Isa, class Dot>
struct Quantised {
  static QuantisedSum sum(const QuantisedArgs& args) {
    return args.bytes ? QuantisedSum::kBytes : QuantisedSum::kFloats;
  }
  static size_t scratch_bytes(const QuantisedArgs&, int64_t) { return 0; }
  static void prepare(const QuantisedArgs& args, const QuantisedRows& rows, int64_t from,
                      int64_t to) {
    PrepareRows<Isa>::run(args, sum(args), rows, from, to);
  }
  static void panel(const QuantisedArgs& args, const QuantisedRows& rows, int64_t panel,
                    std::byte*) {
    if (args.bytes) {
      if (args.bits == 8) return Panel<ByteSum<Isa, Dot>, 8>::run(args, rows, panel);
      return Panel<ByteSum<Isa, Dot>, 4>::run(args, rows, panel);
    }
    if (args.bits == 8) return Panel<FloatSum<Isa>, 8>::run(args, rows, panel);
    return Panel<FloatSum<Isa>, 4>::run(args, rows, panel);
  }
};

// Panels one after another.
template <class Kernel>
void each_panel(const QuantisedArgs& args, const QuantisedRows& rows, int64_t first, int64_t count,
                std::byte* scratch) {
  for (int64_t p = first; p < first + count; ++p) Kernel::panel(args, rows, p, scratch);
}

}  // namespace
}  // namespace torchyard

// The initialiser of the QuantisedKernel quantised_linear_<set>, which needs the features of
// `more` besides those of the set.
#define TORCHYARD_QUANTISED(set, more, ...) \
  {"quantised_linear_" #set,                \
   #set,                                    \
   isa::set.required | (more),              \
   __VA_ARGS__::sum,                        \
   __VA_ARGS__::scratch_bytes,              \
   __VA_ARGS__::prepare,                    \
   1,                                       \
   each_panel<__VA_ARGS__>}

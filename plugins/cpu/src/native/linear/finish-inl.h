// A finished tile of float32 sums becomes elements of the output.
#pragma once

#include <cstdint>

#include "attention/format.h"
#include "linear/linear.h"

namespace torchyard {
namespace {

// Adds the bias and stores: `sums` holds a block's rows, `stride` floats apart, of the outputs
// [column, column + columns). It lies in the first-level cache.
template <class Format>
TORCHYARD_NOINLINE void finish_tile(const LinearArgs& args, const LinearBlock& block, float* sums,
                                    int64_t stride, int64_t column, int columns) {
  using Isa = typename Format::Isa;
  using Element = typename Format::Element;
  constexpr int kLanes = Isa::kLanes;
  Element* out = static_cast<Element*>(args.out) +
                 (block.batch * args.rows + block.first) * args.outputs + column;
  const Element* bias =
      args.bias == nullptr ? nullptr : static_cast<const Element*>(args.bias) + column;
  for (int at = 0; at < columns; at += kLanes) {
    const int present = columns - at < kLanes ? columns - at : kLanes;
    const typename Isa::Vec added =
        bias == nullptr ? Isa::zero() : Isa::load_first(bias + at, present);
    for (int r = 0; r < block.rows; ++r) {
      const typename Isa::Vec sum = Isa::load(sums + r * stride + at);
      // A sum of -0 stays what it is where nothing is added.
      Isa::store_first(out + r * args.outputs + at, bias == nullptr ? sum : Isa::add(sum, added),
                       present);
    }
  }
}

}  // namespace
}  // namespace torchyard

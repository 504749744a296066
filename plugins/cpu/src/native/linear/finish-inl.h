// A finished tile of float32 sums becomes elements of the output.
#pragma once

#include <cstdint>

#include "linear/linear.h"
#include "simd/format.h"

namespace torchyard {
namespace {

template <class Format>
TORCHYARD_INLINE typename Format::Isa::Vec bias_at(const LinearArgs& args, int64_t output,
                                                   int count) {
  using Element = typename Format::Element;
  return Format::Isa::load_first(static_cast<const Element*>(args.bias) + output, count);
}

// Adds the bias and stores: `sums` holds a block's rows, `stride` floats apart, of the outputs
// [column, column + columns). It lies in the first-level cache.
template <class Format>
TORCHYARD_NOINLINE void store_sums(const LinearArgs& args, const LinearBlock& block,
                                   const float* sums, int64_t stride, int64_t column, int columns) {
  using Isa = typename Format::Isa;
  using Element = typename Format::Element;
  constexpr int kLanes = Isa::kLanes;
  Element* out = static_cast<Element*>(args.out) +
                 (block.batch * args.rows + block.first) * args.outputs + column;
  for (int at = 0; at < columns; at += kLanes) {
    const int present = columns - at < kLanes ? columns - at : kLanes;
    const bool biased = args.bias != nullptr;
    const typename Isa::Vec added =
        biased ? bias_at<Format>(args, column + at, present) : Isa::zero();
    for (int r = 0; r < block.rows; ++r) {
      const typename Isa::Vec sum = Isa::load(sums + r * stride + at);
      // A sum of -0 stays what it is where nothing is added.
      Isa::store_first(out + r * args.outputs + at, biased ? Isa::add(sum, added) : sum, present);
    }
  }
}

// Asks for the lines of a rectangle of `columns` bytes, a few of each row: rows lie a page or more
// apart, so nothing else foresees them.
template <int kWrite>
TORCHYARD_INLINE void fetch_rectangle(const char* first, int64_t row, int rows, int64_t columns) {
  for (int r = 0; r < rows; ++r) {
    const char* at = first + r * row;
    for (int64_t i = 0; i < columns; i += 64) __builtin_prefetch(at + i, kWrite);
    __builtin_prefetch(at + columns - 1, kWrite);
  }
}

// Asks for what finishing a block's tile reads and writes, while its products are still taken. Not
// a function of its own: a call of what only asks counts as one without effect, and is left out.
template <class Format>
TORCHYARD_INLINE void fetch_tile(const LinearArgs& args, const LinearBlock& block, int64_t column,
                                 int columns) {
  const int64_t row = block.batch * args.rows + block.first;
  const LinearFunction* function = args.epilogue;
  const int64_t bytes = function == nullptr ? static_cast<int64_t>(sizeof(typename Format::Element))
                                            : element_bytes(function->program->results[0].element);
  const char* out = static_cast<const char*>(args.out) + (row * args.columns() + column) * bytes;
  fetch_rectangle<1>(out, args.columns() * bytes, block.rows, columns * bytes);
  if (function == nullptr) return;
  const Program& program = *function->program;
  for (int64_t i = function->inputs; i < program.operand_count; ++i) {
    const ProgramPlace place = function->places[i];
    const Element element = program.operands[i];
    if (place.row == 0 || place.column != 1) continue;
    const int64_t size = element_bytes(element);
    fetch_rectangle<0>(shifted(place, element, row, column).data, place.row * size, block.rows,
                       columns * size);
  }
}

// Adds the bias, and lets the epilogue make and store the output. Where it takes halves, those of
// the second lie `second` floats after the first's.
template <class Format>
TORCHYARD_NOINLINE void run_epilogue(const LinearArgs& args, const LinearBlock& block, float* sums,
                                     int64_t stride, int64_t second, int64_t column, int columns,
                                     std::byte* memory) {
  using Isa = typename Format::Isa;
  constexpr int kLanes = Isa::kLanes;
  const LinearFunction& function = *args.epilogue;
  for (int half = 0; args.bias != nullptr && half < function.inputs; ++half) {
    for (int at = 0; at < columns; at += kLanes) {
      const int present = columns - at < kLanes ? columns - at : kLanes;
      const typename Isa::Vec added =
          bias_at<Format>(args, half * args.columns() + column + at, present);
      for (int r = 0; r < block.rows; ++r) {
        float* place = sums + half * second + r * stride + at;
        Isa::store(place, Isa::add(Isa::load(place), added));
      }
    }
  }
  const Program& program = *function.program;
  const int64_t row = block.batch * args.rows + block.first;
  ProgramPlace operands[kMaxProgramPlaces];
  for (int half = 0; half < function.inputs; ++half) {
    operands[half] = {reinterpret_cast<char*>(sums + half * second), stride, 1};
  }
  for (int64_t i = function.inputs; i < program.operand_count; ++i) {
    operands[i] = shifted(function.places[i], program.operands[i], row, column);
  }
  const ProgramPlace out = {static_cast<char*>(args.out), args.columns(), 1};
  const ProgramPlace result = shifted(out, program.results[0].element, row, column);
  function.kernel->run(program, operands, &result, block.rows, columns, memory);
}

// Stores a tile; arguments as for those above.
template <class Format>
TORCHYARD_INLINE void finish_tile(const LinearArgs& args, const LinearBlock& block, float* sums,
                                  int64_t stride, int64_t second, int64_t column, int columns,
                                  std::byte* memory) {
  if (args.epilogue == nullptr) {
    store_sums<Format>(args, block, sums, stride, column, columns);
  } else {
    run_epilogue<Format>(args, block, sums, stride, second, column, columns, memory);
  }
}

}  // namespace
}  // namespace torchyard

// From elements to words in the order in which the inner loop reads them.
#pragma once

#include <cstdint>

#include "linear/linear.h"
#include "simd/format.h"
#include "simd/lanes.h"

namespace torchyard {
namespace {

template <class Format>
struct LinearPacker {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  using Element = typename Format::Element;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kStep = kLanes * Format::kPair;  // elements of a vector of words

  static const Element* row_at(const LinearArgs& args, const LinearBlock& block, int64_t row) {
    if (block.prepared != nullptr) {
      return static_cast<const Element*>(block.prepared) + row * args.depth;
    }
    const LinearRows& x = args.x;
    const int64_t r = block.first + row;
    return static_cast<const Element*>(x.data) + block.batch * x.batch + r / x.inner * x.outer +
           r % x.inner * x.row;
  }

  static int least(int64_t a, int b) { return static_cast<int>(a < b ? a : b); }

  // x of a block as [words][rows].
  static void rows(const LinearArgs& args, const LinearBlock& block) {
    const int64_t words = words_of(args.depth, Format::kPair);
    for (int group = 0; group < block.rows; group += kLanes) {
      const int count = least(block.rows - group, kLanes);
      for (int64_t word = 0; word < words; word += kLanes) {
        const int available = least(args.depth - word * Format::kPair, kStep);
        Vec square[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          square[i] =
              i < count
                  ? Format::words(row_at(args, block, group + i) + word * Format::kPair, available)
                  : Isa::zero();
        }
        Isa::transpose(square);
        float* out = reinterpret_cast<float*>(block.words + word * block.rows + group);
        const int present = least(words - word, kLanes);
        for (int i = 0; i < present; ++i) Isa::store_first(out + i * block.rows, square[i], count);
      }
    }
  }

  // x of a block as [dot_words() / kLanes][rows][kLanes]: a stretch of the depth is in one piece.
  static void dot_rows(const LinearArgs& args, const LinearBlock& block) {
    const int64_t words = dot_words(args.depth, Format::kPair);
    for (int r = 0; r < block.rows; ++r) {
      const Element* from = row_at(args, block, r);
      for (int64_t word = 0; word < words; word += kLanes) {
        const int64_t left = args.depth - word * Format::kPair;
        const Vec v =
            left > 0 ? Format::words(from + word * Format::kPair, least(left, kStep)) : Isa::zero();
        Isa::store(block.words + word * block.rows + r * kLanes, v);
      }
    }
  }

  // Words [first, first + count) of the depth of 32 outputs of a plain weight, as [count][32].
  static void panel(const LinearArgs& args, int64_t batch, int64_t output, int64_t first,
                    int64_t count, uint32_t* out) {
    const LinearWeight& weight = args.weight;
    const Element* from = static_cast<const Element*>(weight.data) + batch * weight.batch +
                          output * weight.row + first * Format::kPair * weight.column;
    const int columns = least(args.outputs - output, kPanelColumns);
    const int64_t depth = args.depth - first * Format::kPair;
    if (weight.column == 1) {
      by_outputs(from, weight.row, columns, depth, count, out);
    } else {
      by_depth(from, weight.column, columns, depth, count, out);
    }
  }

  // Each output's words lie one after another: squares of them are turned.
  static void by_outputs(const Element* from, int64_t row, int columns, int64_t depth,
                         int64_t count, uint32_t* out) {
    // What is read here was asked for into the second-level cache during a product before.
    for (int group = 0; group < kPanelColumns; group += kLanes) {
      for (int64_t word = 0; word < count; word += kLanes) {
        const int available = least(depth - word * Format::kPair, kStep);
        const int present = least(count - word, kLanes);
        Vec square[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          if (group + i < columns) {
            square[i] = Format::words(from + (group + i) * row + word * Format::kPair, available);
          } else {
            square[i] = Isa::zero();
          }
        }
        Isa::transpose(square);
        uint32_t* to = out + word * kPanelColumns + group;
        if (present == kLanes) {
#pragma GCC unroll 16
          for (int i = 0; i < kLanes; ++i) Isa::store(to + i * kPanelColumns, square[i]);
        } else {
          for (int i = 0; i < present; ++i) Isa::store(to + i * kPanelColumns, square[i]);
        }
      }
    }
  }

  // The outputs of one step of depth lie one after another: they are in order already.
  static void by_depth(const Element* from, int64_t column, int columns, int64_t depth,
                       int64_t count, uint32_t* out) {
    constexpr int64_t kAhead = 16;  // rows
    for (int64_t word = 0; word < count; ++word) {
      const Element* at = from + word * Format::kPair * column;
      const bool second = Format::kPair == 2 && word * Format::kPair + 1 < depth;
      __builtin_prefetch(at + kAhead * Format::kPair * column);
      for (int group = 0; group < kPanelColumns; group += kLanes) {
        const int present = columns - group < kLanes ? columns - group : kLanes;
        Vec v = Isa::zero();
        if (present > 0) {
          v = Format::value_words(at + group, second ? at + column + group : nullptr, present);
        }
        Isa::store(out + word * kPanelColumns + group, v);
      }
    }
  }

  // Words of a panel of the format `panels` as floats: pairs of bfloat16 become two rows [32].
  // `count` is in floats' rows, and begins at a pair.
  static void widen(const Bf16* from, int64_t count, uint32_t* out) {
    using Bits = typename Lanes<Isa>::Int;
    for (int64_t word = 0; word < count; word += 2) {
      const Bf16* pairs = from + word * kPanelColumns;
      for (int group = 0; group < kPanelColumns; group += kLanes) {
        const Bits both = Lanes<Isa>::template load<Bits>(pairs + 2 * group);
        uint32_t* to = out + word * kPanelColumns + group;
        Isa::store(to, Lanes<Isa>::floats(both << 16));
        if (word + 1 < count) {
          Isa::store(to + kPanelColumns, Lanes<Isa>::floats(both & kHighHalf));
        }
      }
    }
  }
  static constexpr int32_t kHighHalf = static_cast<int32_t>(0xffff0000u);
};

}  // namespace
}  // namespace torchyard

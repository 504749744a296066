// An item: a group of panels with consecutive blocks of rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "linear/finish-inl.h"
#include "linear/pack-inl.h"
#include "linear/tile-inl.h"

namespace torchyard {
namespace {

template <class Format>
struct LinearItems {
  using Isa = typename Format::Isa;
  using Element = typename Format::Element;
  using Packer = LinearPacker<Format>;
  static constexpr int64_t kChunkPanel = kChunkWords * kPanelColumns;
  static constexpr int64_t kRowFloats = kGroupPanels * kPanelColumns;
  // Whether a packed weight holds words as they are multiplied.
  static constexpr bool kReady = std::is_same_v<Element, float> || Format::kPair == 2;

  // A chunk of each panel of the group, then the rows' sums.
  static size_t words(int64_t rows) {
    return static_cast<size_t>(kGroupPanels * kChunkPanel + rows * kRowFloats);
  }

  static void run(const LinearArgs& args, const LinearItem& item) {
    const int64_t depth = words_of(args.depth, Format::kPair);
    float* sums = reinterpret_cast<float*>(item.scratch + kGroupPanels * kChunkPanel);
    const bool halves = std::is_same_v<Element, F16> && item.few_rows;
    for (int64_t first = 0; first < depth || first == 0; first += kChunkWords) {
      const int64_t count = depth - first < kChunkWords ? depth - first : kChunkWords;
      const bool last = first + count == depth;
      const void* panels[kGroupPanels];
      for (int p = 0; p < item.panels; ++p) {
        panels[p] = chunk(args, item, p, first, count, halves);
      }
      int64_t row = 0;
      for (int64_t i = 0; i < item.block_count; ++i) {
        const LinearBlock& block = item.blocks[i];
        // Sums that are complete after this chunk are stored from one block's room.
        float* at = sums + (depth <= kChunkWords ? 0 : row * kRowFloats);
        for (int p = 0; p < item.panels; ++p) {
          multiply(item, block, panels[p], first, count, at + p * kPanelColumns, halves, i == 0);
        }
        if (last) store(args, item, block, at);
        row += block.rows;
      }
    }
  }

 private:
  // Returns where words [first, first + count) of a panel lie: in the weight, or packed here.
  static const void* chunk(const LinearArgs& args, const LinearItem& item, int p, int64_t first,
                           int64_t count, bool halves) {
    uint32_t* scratch = item.scratch + p * kChunkPanel;
    const int64_t number = item.first[p] / kPanelColumns;
    if (!args.weight.packed) {
      Packer::panel(args, item.blocks[0].batch, item.first[p], first, count, scratch);
      return scratch;
    }
    const int64_t depth = words_of(args.depth, Format::kPair);
    if constexpr (kReady) {
      return static_cast<const uint32_t*>(args.weight.data) +
             (number * depth + first) * kPanelColumns;
    } else if constexpr (std::is_same_v<Element, F16>) {
      const F16* from =
          static_cast<const F16*>(args.weight.data) + (number * depth + first) * kPanelColumns;
      if (halves) return from;
      Packer::widen(from, count, scratch);
    } else {
      // Pairs, although words here are single floats.
      const int64_t rows = (args.depth + 1) / 2 * 2;
      Packer::widen(
          static_cast<const Bf16*>(args.weight.data) + (number * rows + first) * kPanelColumns,
          count, scratch);
    }
    return scratch;
  }

  static void multiply(const LinearItem& item, const LinearBlock& block, const void* panel,
                       int64_t first, int64_t count, float* sums, bool halves, bool fetch) {
    const uint32_t* x = block.words + first * block.rows;
    const bool fresh = first == 0;
    const auto product = [&](auto source, auto fetched, const auto* from) {
      panel_product<Format, decltype(source), decltype(fetched)::value>(block.rows, x, from, count,
                                                                        sums, kRowFloats, fresh);
    };
    // Where a second block meets the panel, it is in a cache already.
    fetch = fetch && item.few_rows;
    if (halves) {
      const F16* from = static_cast<const F16*>(panel);
      fetch ? product(HalfSource<Isa>{}, std::true_type{}, from)
            : product(HalfSource<Isa>{}, std::false_type{}, from);
    } else {
      const uint32_t* from = static_cast<const uint32_t*>(panel);
      fetch ? product(WordSource<Isa>{}, std::true_type{}, from)
            : product(WordSource<Isa>{}, std::false_type{}, from);
    }
  }

  static void store(const LinearArgs& args, const LinearItem& item, const LinearBlock& block,
                    float* sums) {
    const int panels = item.panels / args.halves();
    const int64_t left = args.columns() - item.first[0];
    const int64_t columns = panels * kPanelColumns;
    finish_tile<Format>(args, block, sums, kRowFloats, columns, item.first[0],
                        static_cast<int>(left < columns ? left : columns), item.memory);
  }
};

}  // namespace
}  // namespace torchyard

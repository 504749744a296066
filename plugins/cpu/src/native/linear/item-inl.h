// An item: a group of panels with consecutive blocks of rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "linear/finish-inl.h"
#include "linear/pack-inl.h"
#include "linear/tile-inl.h"

namespace torchyard {
namespace {

// Of the output, what an item stores: half as many as were multiplied where halves make one.
inline int stored_columns(const LinearArgs& args, const LinearItem& item) {
  const int64_t left = args.columns() - item.first[0];
  const int64_t columns = item.panels / args.halves() * kPanelColumns;
  return static_cast<int>(left < columns ? left : columns);
}

// What of the weight is read after a chunk that ends at `depth`: the next of the same panel, or the
// first of the panel that likely comes next. So memory is read while products are taken.
template <class Element, class Fetch>
Fetch fetch_later(const LinearArgs& args, const LinearItem& item, int p, int64_t depth, bool last) {
  const LinearWeight& weight = args.weight;
  const int64_t output = item.first[p] + (last ? item.panels * kPanelColumns / args.halves() : 0);
  if (last) depth = 0;
  constexpr int64_t kBytes = sizeof(Element);
  int64_t at, row;
  if (weight.packed) {
    constexpr int64_t kStored = std::is_same_v<Element, Bf16> ? 2 : 1;
    const int64_t deep = (args.depth + kStored - 1) / kStored * kStored;
    at = output / kPanelColumns * deep * kPanelColumns + depth * kPanelColumns;
    row = Fetch::kRowBytes;
  } else {
    at = item.blocks[0].batch * weight.batch + output * weight.row + depth * weight.column;
    row = weight.row * kBytes;
  }
  return {static_cast<const char*>(weight.data) + at * kBytes, row};
}

template <class Format>
struct LinearItems {
  using Isa = typename Format::Isa;
  using Element = typename Format::Element;
  using Packer = LinearPacker<Format>;
  using Products = PanelProducts<Format>;
  static constexpr int64_t kChunkPanel = kChunkWords * kPanelColumns;
  static constexpr int64_t kRowFloats = kGroupPanels * kPanelColumns;
  // Whether a packed weight holds words as they are multiplied.
  static constexpr bool kReady = std::is_same_v<Element, float> || Format::kPair == 2;

  // A chunk of each panel of the group, then the rows' sums: of one block where it is done with
  // before the next begins.
  static size_t words(int64_t rows, int64_t depth) {
    const int64_t kept = depth <= kChunkWords ? Products::kRows : rows;
    return static_cast<size_t>(kGroupPanels * kChunkPanel + kept * kRowFloats);
  }

  static void run(const LinearArgs& args, const LinearItem& item) {
    const int64_t depth = words_of(args.depth, Format::kPair);
    float* sums = reinterpret_cast<float*>(item.scratch + kGroupPanels * kChunkPanel);
    // One block of few rows takes each panel at once: memory is then read in one stream.
    const FetchAhead ahead(args.weight_elements() * static_cast<int64_t>(sizeof(Element)));
    const bool whole = item.few_rows && item.block_count == 1;
    const int64_t most = whole && depth > kChunkWords ? depth : kChunkWords;
    for (int64_t first = 0; first < depth || first == 0; first += most) {
      const int64_t count = depth - first < most ? depth - first : most;
      const bool last = first + count == depth;
      Panel panels[kGroupPanels];
      for (int p = 0; p < item.panels; ++p) panels[p] = chunk(args, item, p, first, count);
      int64_t row = 0;
      for (int64_t i = 0; i < item.block_count; ++i) {
        const LinearBlock& block = item.blocks[i];
        if (last) fetch_tile<Format>(args, block, item.first[0], stored_columns(args, item));
        // Sums that are complete after this chunk are stored from one block's room.
        float* at = sums + (depth <= most ? 0 : row * kRowFloats);
        for (int p = 0; p < item.panels; ++p) {
          const Product product = {block, panels[p], first, count, at + p * kPanelColumns};
          if (item.few_rows) {
            // A second block finds the panel in a cache.
            i == 0 ? few(product, ahead) : few(product, FetchNothing{});
          } else if ((p + i) % item.block_count == 0) {
            many(product, i == 0,
                 fetch_later<Element, FetchWeight>(args, item, p, (first + count) * Format::kPair,
                                                   last));
          } else if (p == item.panels - 1 && i + 1 < item.block_count) {
            const LinearBlock& next = item.blocks[i + 1];
            const uint32_t* x = next.words + first * next.rows;
            many(product, i == 0,
                 FetchRows<1>{reinterpret_cast<const char*>(x), FetchRows<1>::kRowBytes});
          } else {
            many(product, i == 0, FetchNothing{});
          }
        }
        if (last) store(args, item, block, at);
        row += Products::kWritesAll ? Products::kRows : block.rows;
      }
    }
  }

 private:
  // Words of a panel: in the weight, or packed. With few rows there may be none, and `narrow` is
  // where the weight has 16-bit elements. A packed float16 weight has it with many rows too, and
  // its first product makes the words.
  struct Panel {
    const Element* narrow;
    uint32_t* packed;
    const uint32_t* words;
  };
  // A block of x with words [first, first + count) of a panel.
  struct Product {
    const LinearBlock& block;
    const Panel& panel;
    int64_t first, count;
    float* sums;
  };
  // Lines of weight that a word of depth of a panel takes.
  static constexpr int kLines =
      kPanelColumns * Format::kPair * static_cast<int>(sizeof(Element)) / 64;
  using FetchWeight = FetchRows<kLines>;
  static_assert(kChunkWords / FetchWeight::kSteps == kPanelColumns, "a row of lines per output");

  // Returns where words [first, first + count) of a panel lie, which it packs where that is needed.
  static Panel chunk(const LinearArgs& args, const LinearItem& item, int p, int64_t first,
                     int64_t count) {
    uint32_t* scratch = item.scratch + p * kChunkPanel;
    const int64_t number = item.first[p] / kPanelColumns;
    if (!args.weight.packed) {
      Packer::panel(args, item.blocks[0].batch, item.first[p], first, count, scratch);
      return {nullptr, scratch, scratch};
    }
    const int64_t depth = words_of(args.depth, Format::kPair);
    if constexpr (kReady) {
      return {nullptr, scratch,
              static_cast<const uint32_t*>(args.weight.data) +
                  (number * depth + first) * kPanelColumns};
    } else if constexpr (std::is_same_v<Element, F16>) {
      return {static_cast<const F16*>(args.weight.data) + (number * depth + first) * kPanelColumns,
              scratch, scratch};
    } else {
      // Pairs, although words here are single floats.
      const int64_t rows = (args.depth + 1) / 2 * 2;
      const auto* pairs =
          static_cast<const Bf16*>(args.weight.data) + (number * rows + first) * kPanelColumns;
      if (item.few_rows) return {pairs, scratch, scratch};
      Packer::widen(pairs, count, scratch);
      return {nullptr, scratch, scratch};
    }
  }

  // Few rows, with what is in the weight as it is there.
  template <class Fetch>
  static void few(const Product& of, Fetch fetch) {
    if constexpr (kReady) {
      multiply(of, WordSource<Isa>{of.panel.words}, fetch);
    } else if constexpr (std::is_same_v<Element, F16>) {
      multiply(of, HalfSource<Isa>{of.panel.narrow}, fetch);
    } else {
      multiply(of, PairSource<Isa>{of.panel.narrow}, fetch);
    }
  }

  template <class Fetch>
  static void many(const Product& of, bool make, Fetch fetch) {
    if constexpr (std::is_same_v<Element, F16>) {
      if (make && of.panel.narrow != nullptr) {
        return multiply(of, KeptHalfSource<Isa>{of.panel.narrow, of.panel.packed}, fetch);
      }
    }
    multiply(of, WordSource<Isa>{of.panel.words}, fetch);
  }

  template <class Source, class Fetch>
  static void multiply(const Product& of, Source source, Fetch fetch) {
    Products::run(of.block.rows, of.block.words + of.first * of.block.rows, source, of.count,
                  of.sums, kRowFloats, of.first == 0, fetch);
  }

  static void store(const LinearArgs& args, const LinearItem& item, const LinearBlock& block,
                    float* sums) {
    const int64_t second = item.panels / args.halves() * kPanelColumns;
    finish_tile<Format>(args, block, sums, kRowFloats, second, item.first[0],
                        stored_columns(args, item), item.memory);
  }
};

}  // namespace
}  // namespace torchyard

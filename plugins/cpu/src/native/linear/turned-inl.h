// An item of a plain weight with rows of x that fill panels: the two change places.
//
// The words of the weight's rows are in the order of the depth already, so they need not be turned:
// x is, once, into panels. A stretch of some outputs is copied to where rows do not lie a power of
// two apart, and widened where words are wider than elements, while the stretch before it is
// multiplied; the one after it is asked for. Sums are then [outputs][rows], and turned at the end.
#pragma once

#include <cstdint>

#include "linear/finish-inl.h"
#include "linear/pack-inl.h"
#include "linear/tile-inl.h"

namespace torchyard {
namespace {

template <class Format>
struct LinearTurned {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  using Element = typename Format::Element;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kStep = kLanes * Format::kPair;
  static constexpr int kRows = TileShape<Isa>::kRows;
  static constexpr int kTileFloats = kGroupPanels * kPanelColumns;
  // Words of a chunk of a row, and a line so that rows begin in different sets of a cache.
  static constexpr int kApart = static_cast<int>(kChunkWords) + 16;
  static constexpr int64_t kStretchWords = int64_t{kRows} * kApart;
  // Of a block of x: a finished tile [rows][outputs], or sums [outputs][rows].
  static constexpr int64_t kTileWords = int64_t{kPanelColumns} * kTileFloats;

  // Two stretches of the weight, a finished tile, the sums.
  static size_t words(int64_t rows) {
    return static_cast<size_t>(2 * kStretchWords + kTileWords + rows * kTileFloats);
  }

  static void run(const LinearArgs& args, const LinearItem& item) {
    const int columns = LinearPacker<Format>::least(args.columns() - item.first[0],
                                                    item.panels / args.halves() * kPanelColumns);
    const Walk walk = {args, item, columns, (columns + kRows - 1) / kRows};
    float* sums = reinterpret_cast<float*>(item.scratch + 2 * kStretchWords + kTileWords);
    const int64_t count = walk.count();
    bool ready = false;
    for (int64_t i = 0; i < count; ++i) {
      const Stretch of = walk.at(i);
      uint32_t* const words = item.scratch + i % 2 * kStretchWords;
      if (!ready) widen(args, of, words);
      const Stretch next = walk.at(i + 1);
      ready = i + 1 < count && of.words == kChunkWords && next.whole;
      Meanwhile meanwhile(args, next, walk.at(i + 2), item.scratch + (i + 1) % 2 * kStretchWords,
                          item.block_count, ready);
      const bool last = i + 1 == count;
      const bool turns = next.first != of.first;
      for (int64_t b = 0; b < item.block_count; ++b) {
        const LinearBlock& block = item.blocks[b];
        if (last) fetch_tile<Format>(args, block, item.first[0], columns);
        meanwhile.take_share(turns ? block.words + next.first * kPanelColumns : nullptr);
        panel_product<Format, kApart>(of.outputs, words,
                                      WordSource<Isa>{block.words + of.first * kPanelColumns},
                                      of.words, sums + b * kTileWords + of.row * kPanelColumns,
                                      kPanelColumns, of.first == 0, meanwhile);
      }
    }
    for (int64_t b = 0; b < item.block_count; ++b) {
      store(args, item, item.blocks[b], sums + b * kTileWords, columns);
    }
  }

 private:
  // Outputs and words of depth that are multiplied at once.
  struct Stretch {
    const Element* weight;
    int outputs;
    int row;  // of the sums
    int64_t first, words;
    bool whole;  // a chunk of nothing but elements
  };

  // The stretches of an item: for each chunk all outputs, of one half and then of the other. Beyond
  // them those of the item that likely comes next.
  struct Walk {
    const LinearArgs& args;
    const LinearItem& item;
    int columns;
    int64_t parts;  // of a half's outputs

    int64_t of_chunk() const { return parts * args.halves(); }
    int64_t depth() const { return words_of(args.depth, Format::kPair); }
    int64_t count() const {
      const int64_t chunks = (depth() + kChunkWords - 1) / kChunkWords;
      return of_chunk() * (chunks > 1 ? chunks : 1);
    }

    Stretch at(int64_t i) const {
      const int64_t beyond = i < count() ? 0 : columns;
      i %= count();
      const int64_t first = i / of_chunk() * kChunkWords;
      const int64_t left = depth() - first;
      const int64_t half = i % of_chunk() / parts;
      const int from = static_cast<int>(columns * (i % parts) / parts);
      const int to = static_cast<int>(columns * (i % parts + 1) / parts);
      const int64_t panel = half * (item.panels / args.halves());
      const LinearWeight& weight = args.weight;
      const int64_t place = item.blocks[0].batch * weight.batch +
                            (item.first[panel] + beyond + from) * weight.row +
                            first * Format::kPair;
      return {static_cast<const Element*>(weight.data) + place,
              to - from,
              static_cast<int>(panel) * kPanelColumns + from,
              first,
              left < kChunkWords ? left : kChunkWords,
              beyond == 0 && (first + kChunkWords) * Format::kPair <= args.depth};
    }
  };

  // What the steps of a stretch's products do beside them: line by line of 16 words, and with as
  // many steps in between as there are, the next stretch is widened and the one after it asked for.
  // Each block's product takes a share of the rows.
  struct Meanwhile {
    static constexpr int64_t kLine = 16;
    static constexpr int64_t kLinesOfRow = kChunkWords / kLine;

    const Element* from;
    const Element* later;
    int64_t stride;
    uint32_t* to;
    bool widens;
    int rows, left;     // of a share, and of all that are left
    int slower;         // 2^slower steps are between lines
    int64_t steps;      // in which there is a line
    const char* panel;  // of x, of which two lines are asked for at each step; or nullptr

    Meanwhile(const LinearArgs& args, const Stretch& next, const Stretch& after, uint32_t* words,
              int64_t blocks, bool widen)
        : from(next.weight),
          later(after.weight),
          stride(args.weight.row),
          to(words),
          widens(widen),
          rows(static_cast<int>((kRows + blocks - 1) / blocks)),
          left(next.outputs),
          slower(0),
          steps(0),
          panel(nullptr) {
      static_assert(kRows * kLinesOfRow <= kChunkWords, "one block has steps for all rows");
      while (slower < 4 && rows * kLinesOfRow << (slower + 1) <= kChunkWords) ++slower;
    }

    void take_share(const uint32_t* of_x) {
      if (steps > 0) {
        from += rows * stride;
        later += rows * stride;
        to += rows * kApart;
      }
      const int mine = left < rows ? left : rows;
      left -= mine;
      steps = mine * kLinesOfRow << slower;
      panel = reinterpret_cast<const char*>(of_x);
    }

    TORCHYARD_INLINE void operator()(int64_t step) const {
      if (panel != nullptr) {
        const char* at = panel + step * kPanelColumns * static_cast<int64_t>(sizeof(uint32_t));
        __builtin_prefetch(at, 0, 2);
        __builtin_prefetch(at + 64, 0, 2);
      }
      if (step >= steps || step % (int64_t{1} << slower) != 0) return;
      const int64_t line = step >> slower;
      const int64_t row = line / kLinesOfRow;
      const int64_t word = line % kLinesOfRow * kLine;
      const int64_t place = row * stride + word * Format::kPair;
      __builtin_prefetch(later + place, 0, 2);
      if (!widens) return;
#pragma GCC unroll 16
      for (int64_t l = 0; l < kLine; l += kLanes) {
        Isa::store(to + row * kApart + word + l,
                   Format::words(from + place + l * Format::kPair, kStep));
      }
    }
  };

  static void widen(const LinearArgs& args, const Stretch& of, uint32_t* to) {
    const int64_t depth = args.depth - of.first * Format::kPair;
    for (int o = 0; o < of.outputs; ++o) {
      const Element* row = of.weight + o * args.weight.row;
      for (int64_t word = 0; word < of.words; word += kLanes) {
        const int left = LinearPacker<Format>::least(depth - word * Format::kPair, kStep);
        Isa::store(to + o * kApart + word, Format::words(row + word * Format::kPair, left));
      }
    }
  }

  static void store(const LinearArgs& args, const LinearItem& item, const LinearBlock& block,
                    const float* sums, int columns) {
    float* tile = reinterpret_cast<float*>(item.scratch + 2 * kStretchWords);
    const int second = item.panels / args.halves() * kPanelColumns;
    for (int half = 0; half < args.halves(); ++half) {
      for (int at = half * second; at < half * second + columns; at += kLanes) {
        for (int row = 0; row < kPanelColumns; row += kLanes) {
          Vec square[kLanes];
#pragma GCC unroll 16
          for (int l = 0; l < kLanes; ++l) {
            square[l] = Isa::load(sums + (at + l) * kPanelColumns + row);
          }
          Isa::transpose(square);
#pragma GCC unroll 16
          for (int l = 0; l < kLanes; ++l) {
            Isa::store(tile + (row + l) * kTileFloats + at, square[l]);
          }
        }
      }
    }
    finish_tile<Format>(args, block, tile, kTileFloats, second, item.first[0], columns,
                        item.memory);
  }
};

}  // namespace
}  // namespace torchyard

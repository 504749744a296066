// Where a key block's operands and sums lie in a thread's scratch.
//
// Five products share the micro-kernel of the forward; each operand is packed once per use:
//   s  = query . key^T     rows [tile][word][kTileRows]            x  keys as columns
//   dp = dout . value^T    likewise                                x  values as columns
//   dquery  = ds . key     strip [kTileRows][keys as words]        x  keys as values
//   dvalue^T = dout^T . p  [rows as words][V], read by columns     x  p [rows as words][kTileKeys]
//   dkey^T   = query^T . ds  likewise                              x  ds likewise
// "Rows as words": word w holds the kPair rows from w * kPair on. The last two sums are transposed
// only when the key block is closed.
#pragma once

#include <cstdint>

#include "attention/backward/backward.h"
#include "attention/tile/layout.h"
#include "attention/tile/score-inl.h"

namespace torchyard {
namespace {

inline ForwardArgs with_sizes(ForwardArgs args, int64_t size) {
  args.head_dim = args.value_dim = size;
  return args;
}

template <class Format>
struct BackwardLayout {
  using Isa = typename Format::Isa;
  using L = Layout<Format>;
  static constexpr int kTileRows = Isa::kTileRows;
  // Of a tile's rows where a program modifies scores: raw scores, weights, slopes.
  static constexpr int kBuffers = 3;

  L head;   // for rows of D elements, as keys and as values
  L value;  // for rows of V elements
  int64_t rows;
  int64_t row_words;

  // Offsets in words.
  int64_t keys, values, key_rows;       // [panel]
  int64_t grad_keys, grad_values;       // [panel][sub-panel][columns][kTileKeys]
  int64_t query_tiles, grad_tiles;      // [tile][words][kTileRows]
  int64_t query_columns, grad_columns;  // [row words][columns]
  int64_t weights, slopes;              // [panel][sub-panel][row words][kTileKeys]
  int64_t strip, tile_weights;          // [kTileRows][kStripStride], [kTileRows][kPanelKeys]
  int64_t modified;                     // [kBuffers][kTileRows][keys]
  int64_t program;                      // ScoreTile's
  int64_t shift, minus_delta;           // [rows]; -lse, of unmodified scores in units of log2
  int64_t alive, unsafe_keys;           // bytes [rows], [panel]
  int64_t total;

  BackwardLayout(const BackwardArgs& args, const BackwardCapacity& capacity)
      : head(with_sizes(args.call, args.call.head_dim)),
        value(with_sizes(args.call, args.call.value_dim)),
        rows((capacity.rows + kTileRows - 1) / kTileRows * kTileRows),
        row_words(rows / Format::kPair) {
    static_assert(kTileRows % Format::kPair == 0, "rows of a tile share no word with another's");
    int64_t at = 0;
    const auto place = [&at](int64_t words) {
      const int64_t start = at;
      at += (words + 15) / 16 * 16;
      return start;
    };
    const int64_t panels = capacity.panels;
    keys = place(panels * head.key_panel_words());
    values = place(panels * value.key_panel_words());
    key_rows = place(panels * head.value_panel_words());
    grad_keys = place(panels * grad_key_words());
    grad_values = place(panels * grad_value_words());
    // Tiles are written by whole vectors, and columns read by whole tiles: a little room after
    // each.
    query_tiles = place(rows * head.key_words + Isa::kLanes);
    grad_tiles = place(rows * value.key_words + Isa::kLanes);
    query_columns = place(row_words * head.value_columns + kTileRows);
    grad_columns = place(row_words * value.value_columns + kTileRows);
    weights = place(panels * pair_words());
    slopes = place(panels * pair_words());
    strip = place(kTileRows * L::kStripStride);
    tile_weights = place(kTileRows * kPanelKeys);
    modified = place(args.call.score == nullptr ? 0 : kBuffers * kTileRows * panels * kPanelKeys);
    program = place(static_cast<int64_t>(ScoreTile<Format>::bytes(args.call) / sizeof(uint32_t)));
    shift = place(rows);
    minus_delta = place(rows);
    alive = place(rows);
    unsafe_keys = place(panels);
    total = at;
  }

  int64_t grad_key_words() const { return head.value_columns * kPanelKeys; }
  int64_t grad_value_words() const { return value.value_columns * kPanelKeys; }
  int64_t pair_words() const { return row_words * kPanelKeys; }
};

}  // namespace
}  // namespace torchyard

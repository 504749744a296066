// The backward of one key block: opened, passed over by blocks of rows, closed.
#pragma once

#include <cstdint>

#include "attention/backward/modified-inl.h"
#include "attention/backward/pack-inl.h"
#include "attention/backward/scores-inl.h"
#include "attention/backward/sums-inl.h"
#include "attention/tile/pack-inl.h"
#include "attention/tile/values-inl.h"
#include "attention/tile/visibility-inl.h"
#include "base/isa/kernel_table.h"

namespace torchyard {
namespace {

template <class Format>
struct BackwardRows {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using Element = typename Format::Element;
  using L = Layout<Format>;
  using BL = BackwardLayout<Format>;
  static constexpr int kTileRows = Isa::kTileRows;

  static size_t scratch_bytes(const BackwardArgs& args, const BackwardCapacity& capacity) {
    return static_cast<size_t>(BL(args, capacity).total) * sizeof(uint32_t);
  }

  static size_t grad_query_bytes(const BackwardArgs& args, int64_t rows) {
    const BL layout(args, {rows, 0});
    return static_cast<size_t>(layout.rows * layout.head.value_columns) * sizeof(float);
  }

  static void open(const BackwardArgs& args, const KeyBlock& block) {
    const Item item(args, block);
    const BL& layout = item.layout;
    const ForwardArgs& call = args.call;
    const Element* keys = at<const Element>(call.key, block.batch, block.key_head, 0);
    const Element* values = at<const Element>(call.value, block.batch, block.key_head, 0);
    for (int64_t p = 0; p < block.panel_count; ++p) {
      const int64_t first = (block.first_panel + p) * kPanelKeys;
      const int count = static_cast<int>(smaller(call.keys - first, kPanelKeys));
      const Element* key = keys + first * call.key.row;
      Packer<Format>::keys(key, call.key.row, count, call.head_dim, layout.head.key_words,
                           item.words(layout.keys) + p * layout.head.key_panel_words());
      item.unsafe_keys()[p] =
          Packer<Format>::values(key, call.key.row, count, call.head_dim, layout.head,
                                 item.words(layout.key_rows) + p * layout.head.value_panel_words());
      Packer<Format>::keys(values + first * call.value.row, call.value.row, count, call.value_dim,
                           layout.value.key_words,
                           item.words(layout.values) + p * layout.value.key_panel_words());
    }
    fill_zero(item.floats(layout.grad_keys), block.panel_count * layout.grad_key_words());
    fill_zero(item.floats(layout.grad_values), block.panel_count * layout.grad_value_words());
  }

  static void rows(const BackwardArgs& args, const KeyBlock& block, const RowBlock& rows) {
    Item item(args, block);
    const BL& layout = item.layout;
    if (rows.first) {
      const int64_t padded = (rows.row_count + kTileRows - 1) / kTileRows * kTileRows;
      fill_zero(rows.grad_query, padded * layout.head.value_columns);
    }
    if (rows.panel_count != 0) {
      item.take(args, block, rows);
      for (int64_t p = 0; p < rows.panel_count; ++p) item.spans[p] = {0, 0, false};
      if (args.call.score == nullptr) {
        tiles(args, block, rows, item, nullptr);
      } else {
        RowsJob job{};
        job.batch = block.batch;
        job.query_head = rows.query_head;
        job.first_row = rows.first_row;
        job.row_count = rows.row_count;
        ScoreTile<Format> program(args.call, job,
                                  reinterpret_cast<std::byte*>(item.words(layout.program)));
        tiles(args, block, rows, item, &program);
      }
      for (int64_t p = 0; p < rows.panel_count; ++p) sum_over_rows(args, block, rows, item, p);
    }
    if (rows.last) write_grad_query(args, block, rows, layout);
  }

  static void close(const BackwardArgs& args, const KeyBlock& block) {
    const Item item(args, block);
    const BL& layout = item.layout;
    const ForwardArgs& call = args.call;
    for (int64_t p = 0; p < block.panel_count; ++p) {
      const int64_t first = (block.first_panel + p) * kPanelKeys;
      const int64_t count = smaller(call.keys - first, kPanelKeys);
      KeySums<Format>::write(
          item.floats(layout.grad_keys) + p * layout.grad_key_words(),
          layout.head.value_columns * L::kTileKeys, call.head_dim, static_cast<float>(call.scale),
          count, at<Element>(args.grad_key, block.batch, block.key_head, first), args.grad_key.row);
      KeySums<Format>::write(item.floats(layout.grad_values) + p * layout.grad_value_words(),
                             layout.value.value_columns * L::kTileKeys, call.value_dim, 1.0f, count,
                             at<Element>(args.grad_value, block.batch, block.key_head, first),
                             args.grad_value.row);
    }
  }

 private:
  // The rows of a block, padded to whole words, that some tile of a panel saw.
  struct Span {
    int64_t first;
    int64_t end;  // 0: none
    bool masked;
  };

  struct Item {
    BL layout;
    std::byte* scratch;
    Span spans[L::kStripPanels];
    bool unsafe_query = false;
    bool unsafe_grad = false;

    Item(const BackwardArgs& args, const KeyBlock& block)
        : layout(args, block.capacity), scratch(block.scratch) {}

    uint32_t* words(int64_t offset) const { return reinterpret_cast<uint32_t*>(scratch) + offset; }
    float* floats(int64_t offset) const { return reinterpret_cast<float*>(scratch) + offset; }
    uint8_t* alive() const { return reinterpret_cast<uint8_t*>(words(layout.alive)); }
    uint8_t* unsafe_keys() const { return reinterpret_cast<uint8_t*>(words(layout.unsafe_keys)); }

    void take(const BackwardArgs& args, const KeyBlock& block, const RowBlock& rows) {
      using Pack = RowPacker<Format>;
      const ForwardArgs& call = args.call;
      const Element* query =
          at<const Element>(call.query, block.batch, rows.query_head, rows.first_row);
      const Element* grad =
          at<const Element>(args.grad_out, block.batch, rows.query_head, rows.first_row);
      const Element* out =
          at<const Element>(call.out, block.batch, rows.query_head, rows.first_row);
      const int64_t count = rows.row_count;
      const int64_t padded = (count + kTileRows - 1) / kTileRows * kTileRows;
      Pack::tiles(query, call.query.row, count, call.head_dim, layout.head.key_words,
                  words(layout.query_tiles));
      Pack::tiles(grad, args.grad_out.row, count, call.value_dim, layout.value.key_words,
                  words(layout.grad_tiles));
      unsafe_query = Pack::columns(query, call.query.row, count, padded, call.head_dim,
                                   layout.head.value_columns, words(layout.query_columns));
      unsafe_grad = Pack::columns(grad, args.grad_out.row, count, padded, call.value_dim,
                                  layout.value.value_columns, words(layout.grad_columns));
      const int64_t first =
          (block.batch * call.query_heads + rows.query_head) * call.query_rows + rows.first_row;
      for (int64_t r = 0; r < padded; ++r) {
        const float lse = r < count ? call.lse[first + r] : kMinusInfinity;
        const bool lives = lse != kMinusInfinity;
        alive()[r] = lives;
        const double unit = call.score == nullptr ? kLog2E : 1.0;
        floats(layout.shift)[r] = lives ? static_cast<float>(-lse * unit) : 0.0f;
        float delta = 0.0f;
        if (lives) {
          delta = Pack::dot(grad + r * args.grad_out.row, out + r * call.out.row, call.value_dim);
          if (args.grad_lse != nullptr) delta -= args.grad_lse[first + r];
        }
        floats(layout.minus_delta)[r] = -delta;
      }
    }
  };

  template <class T, class Tensor>
  static T* at(const Tensor& tensor, int64_t batch, int64_t head, int64_t row) {
    return static_cast<T*>(tensor.data) + batch * tensor.batch + head * tensor.head +
           row * tensor.row;
  }

  static constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

  // `count` is a multiple of kLanes.
  static void fill_zero(float* p, int64_t count) {
    for (int64_t i = 0; i < count; i += Isa::kLanes) Isa::store(p + i, Isa::zero());
  }

  // The keys of a panel that one row sees.
  static uint64_t visible(const Panel& panel, int64_t row, bool alive) {
    if (!alive) return 0;
    uint64_t bits = ~uint64_t{0};
    if (panel.words != nullptr) {
      __builtin_memcpy(&bits, panel.words + row * panel.row_bytes, sizeof(bits));
    }
    return bits & panel.tail;
  }

  template <int kRows>
  static Seen look(const Panel& panel, const uint8_t* alive, int64_t row, uint64_t (&word)[kRows]) {
    uint64_t any = 0;
    uint64_t all = ~uint64_t{0};
    for (int r = 0; r < kRows; ++r) {
      word[r] = visible(panel, row + r, alive[row + r] != 0);
      any |= word[r];
      all &= word[r];
    }
    if (any == 0) return Seen::kNothing;
    return all == ~uint64_t{0} ? Seen::kEverything : Seen::kSome;
  }

  static void tiles(const BackwardArgs& args, const KeyBlock& block, const RowBlock& rows,
                    Item& item, ScoreTile<Format>* program) {
    for (int64_t row = 0; row < rows.row_count; row += kTileRows) {
      const int64_t live = rows.row_count - row;
      // Words hold pairs of rows, so a tile has an even number of them.
      if (live > 4) {
        tile<6>(args, block, rows, item, program, row);
      } else if (live > 2) {
        tile<4>(args, block, rows, item, program, row);
      } else {
        tile<2>(args, block, rows, item, program, row);
      }
    }
  }

  // Weights and slopes of a tile against all panels, and the tile's part of dquery. `program` is
  // null where scores are not modified.
  template <int kRows>
  static void tile(const BackwardArgs& args, const KeyBlock& block, const RowBlock& rows,
                   Item& item, ScoreTile<Format>* program, int64_t row) {
    using Sum = Values<Format, kRows>;
    const BL& layout = item.layout;
    const TileRows tile_rows{item.words(layout.query_tiles) + row * layout.head.key_words,
                             item.words(layout.grad_tiles) + row * layout.value.key_words,
                             item.floats(layout.shift) + row,
                             item.floats(layout.minus_delta) + row};
    uint32_t* strip = item.words(layout.strip);
    const int64_t sub_stride = layout.row_words * L::kTileKeys;
    TilePanel<kRows> keys[L::kStripPanels];
    PanelPlace places[L::kStripPanels];
    const uint32_t* key_rows[L::kStripPanels];
    int seen = 0;
    bool unsafe = false;
    for (int64_t p = 0; p < rows.panel_count; ++p) {
      const Panel& panel = rows.panels[p];
      const int64_t local = panel.index - block.first_panel;
      TilePanel<kRows>& mine = keys[seen];
      const Seen what = look<kRows>(panel, item.alive(), row, mine.word);
      Span& span = item.spans[p];
      const int64_t to = p * layout.pair_words() + row / Format::kPair * L::kTileKeys;
      uint32_t* weights = item.words(layout.weights) + to;
      uint32_t* slopes = item.words(layout.slopes) + to;
      if (what == Seen::kNothing) {
        if (span.end == 0) continue;
        // Tiles further on may see the panel again: the sums run over these rows too.
        constexpr int kWords = kRows / Format::kPair * L::kTileKeys;
        for (int sub = 0; sub < L::kSubPanels; ++sub) {
          fill_zero(reinterpret_cast<float*>(weights + sub * sub_stride), kWords);
          fill_zero(reinterpret_cast<float*>(slopes + sub * sub_stride), kWords);
        }
        span.masked = true;
        continue;
      }
      if (span.end == 0) span.first = row;
      span.end = row + kRows;
      mine.index = panel.index;
      mine.masked = what == Seen::kSome;
      if (mine.masked) narrow(mine);
      span.masked = span.masked || mine.masked;
      unsafe = unsafe || (mine.masked && item.unsafe_keys()[local] != 0);
      places[seen] = {item.words(layout.keys) + local * layout.head.key_panel_words(),
                      item.words(layout.values) + local * layout.value.key_panel_words(), weights,
                      slopes};
      key_rows[seen++] = item.words(layout.key_rows) + local * layout.head.value_panel_words();
    }
    if (seen == 0) return;
    if (program == nullptr) {
      plain<kRows>(args, layout, item, tile_rows, keys, places, seen, sub_stride, strip);
    } else {
      ModifiedScores<Format, kRows>::run(
          layout, tile_rows, static_cast<float>(args.call.scale), *args.score_gradient, *program,
          row, keys, places, seen, sub_stride, item.floats(layout.modified), rows.captured, strip);
    }
    // Only the sums of a forward's tile take part.
    const Tile<Format> sums(layout.head, reinterpret_cast<std::byte*>(
                                             rows.grad_query + row * layout.head.value_columns));
    if (!unsafe) {
      Sum::add(layout.head, sums, key_rows, keys, seen, strip);
      return;
    }
    for (int i = 0; i < seen; ++i) {
      const uint32_t* slopes = strip + i * L::kPanelWords;
      if (keys[i].masked && item.unsafe_keys()[keys[i].index - block.first_panel] != 0) {
        Sum::add_visible(layout.head, sums, key_rows[i], keys[i], slopes);
      } else {
        Sum::add(layout.head, sums, key_rows + i, keys + i, 1, slopes);
      }
    }
  }

  // Weights and slopes of unmodified scores, panel by panel.
  template <int kRows>
  static void plain(const BackwardArgs& args, const BL& layout, const Item& item,
                    const TileRows& rows, const TilePanel<kRows>* keys, const PanelPlace* places,
                    int panels, int64_t sub_stride, uint32_t* strip) {
    using Scores = PlainScores<Format, kRows>;
    const float to_log2 = static_cast<float>(args.call.scale * kLog2E);
    float* tile_weights = item.floats(layout.tile_weights);
    for (int p = 0; p < panels; ++p) {
      const PanelPlace& place = places[p];
      uint32_t* strip_panel = strip + p * L::kPanelWords;
      if (keys[p].masked) {
        Scores::template weights<true>(layout, rows, to_log2, place.keys, keys[p].word,
                                       tile_weights, place.weights, sub_stride);
        Scores::template slopes<true>(layout, rows, place.values, keys[p].word, tile_weights,
                                      place.slopes, sub_stride, strip_panel);
      } else {
        Scores::template weights<false>(layout, rows, to_log2, place.keys, keys[p].word,
                                        tile_weights, place.weights, sub_stride);
        Scores::template slopes<false>(layout, rows, place.values, keys[p].word, tile_weights,
                                       place.slopes, sub_stride, strip_panel);
      }
    }
  }

  // A panel's dvalue and dkey gain what the block of rows brings.
  static void sum_over_rows(const BackwardArgs& args, const KeyBlock& block, const RowBlock& rows,
                            const Item& item, int64_t p) {
    const BL& layout = item.layout;
    const Span& span = item.spans[p];
    if (span.end == 0) return;
    const int64_t local = rows.panels[p].index - block.first_panel;
    gain(layout, item, rows, p, layout.grad_columns, layout.value.value_columns,
         args.call.value_dim, layout.weights,
         item.floats(layout.grad_values) + local * layout.grad_value_words(),
         span.masked && item.unsafe_grad);
    gain(layout, item, rows, p, layout.query_columns, layout.head.value_columns, args.call.head_dim,
         layout.slopes, item.floats(layout.grad_keys) + local * layout.grad_key_words(),
         span.masked && item.unsafe_query);
  }

  static void gain(const BL& layout, const Item& item, const RowBlock& rows, int64_t p,
                   int64_t left_at, int64_t stride, int64_t size, int64_t right_at, float* sum,
                   bool unsafe) {
    const Span& span = item.spans[p];
    const int64_t sub_stride = layout.row_words * L::kTileKeys;
    const int64_t sum_stride = stride * L::kTileKeys;
    const uint32_t* left = item.words(left_at);
    const uint32_t* right = item.words(right_at) + p * layout.pair_words();
    if (!unsafe) {
      const int64_t first = span.first / Format::kPair;
      const int64_t count = (span.end - span.first) / Format::kPair;
      for (int sub = 0; sub < L::kSubPanels; ++sub) {
        KeySums<Format>::add(left + first * stride, stride, size,
                             right + sub * sub_stride + first * L::kTileKeys, count,
                             sum + sub * sum_stride);
      }
      return;
    }
    for (int64_t row = span.first; row < smaller(span.end, rows.row_count); ++row) {
      const int64_t word = row / Format::kPair;
      KeySums<Format>::add_visible(
          left + word * stride, size, static_cast<int>(row % Format::kPair),
          right + word * L::kTileKeys, sub_stride,
          visible(rows.panels[p], row, item.alive()[row] != 0), sum, sum_stride);
    }
  }

  static void write_grad_query(const BackwardArgs& args, const KeyBlock& block,
                               const RowBlock& rows, const BL& layout) {
    const Vec scale = Isa::set1(static_cast<float>(args.call.scale));
    const int64_t size = args.call.head_dim;
    for (int64_t r = 0; r < rows.row_count; ++r) {
      const float* sum = rows.grad_query + r * layout.head.value_columns;
      Element* out = at<Element>(args.grad_query, block.batch, rows.query_head, rows.first_row + r);
      for (int64_t c = 0; c < size; c += Isa::kLanes) {
        const int n = static_cast<int>(smaller(size - c, Isa::kLanes));
        Isa::store_first(out + c, Isa::mul(Isa::load(sum + c), scale), n);
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

// The initialiser of the BackwardKernel attention_backward_<shape>_<set>.
#define TORCHYARD_BACKWARD(set, shape, dtype, ...) \
  {"attention_backward_" #shape "_" #set,          \
   #set,                                           \
   DType::dtype,                                   \
   isa::set.required,                              \
   __VA_ARGS__::kTileRows,                         \
   __VA_ARGS__::scratch_bytes,                     \
   __VA_ARGS__::grad_query_bytes,                  \
   __VA_ARGS__::open,                              \
   __VA_ARGS__::rows,                              \
   __VA_ARGS__::close}

// The forward pass of one item: consecutive rows of one query head against its panels.
//
// Loop order: strips of keys outside, tiles of rows inside, so that a strip's packed keys and
// values stay in the second-level cache while every tile of the item passes over them.
#pragma once

#include <cstdint>

#include "attention/forward/modified-inl.h"
#include "attention/forward/softmax-inl.h"
#include "attention/tile/values-inl.h"

namespace torchyard {
namespace {

// Packed bytes that a strip may have: about half of a common second-level cache.
constexpr int64_t kStripBytes = int64_t{512} << 10;

template <class Format>
struct Rows {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using Element = typename Format::Element;
  using L = Layout<Format>;
  static constexpr int kTileRows = Isa::kTileRows;

  static size_t scratch_bytes(const ForwardArgs& args, int64_t rows) {
    const L layout(args);
    const size_t tiles = static_cast<size_t>((rows + kTileRows - 1) / kTileRows);
    return tiles * Tile<Format>::bytes(layout) + kStripWords * 4 + kBufferWords * 4 + 64 +
           ScoreTile<Format>::bytes(args);
  }

  static void run(const ForwardArgs& args, const RowsJob& job) {
    const L layout(args);
    if (args.score == nullptr) {
      attend<false>(args, job, layout, nullptr, static_cast<float>(args.scale * kLog2E));
    } else {
      const size_t before = scratch_bytes(args, job.row_count) - ScoreTile<Format>::bytes(args);
      ScoreTile<Format> program(args, job, job.scratch + before);
      attend<true>(args, job, layout, &program, static_cast<float>(args.scale));
    }
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(Element);
  static constexpr size_t kStripWords = size_t{kTileRows} * L::kStripStride;
  static constexpr size_t kBufferWords = size_t{kTileRows} * L::kStripPanels * kPanelKeys;

  // `factor` multiplies raw scores, into units of log2 but where a program modifies them.
  template <bool kModified>
  static void attend(const ForwardArgs& args, const RowsJob& job, const L& layout,
                     ScoreTile<Format>* program, float factor) {
    uint32_t* strip = reinterpret_cast<uint32_t*>(job.scratch);
    float* buffer = reinterpret_cast<float*>(strip + kStripWords);
    std::byte* tiles = reinterpret_cast<std::byte*>(buffer + kBufferWords);
    const size_t tile_bytes = Tile<Format>::bytes(layout);

    int64_t step = kStripBytes / (layout.panel_words() * 4);
    step = step < 2 ? 2 : step > L::kStripPanels ? L::kStripPanels : step;
    // Once also where there is no panel.
    for (int64_t panel = 0; panel == 0 || panel < job.panel_count; panel += step) {
      const int64_t left = job.panel_count - panel;
      const int count = static_cast<int>(left < step ? left : step);
      for (int64_t row = 0; row < job.row_count; row += kTileRows) {
        const Tile<Format> tile(layout, tiles + row / kTileRows * tile_bytes);
        const int64_t live = job.row_count - row;
        if (panel == 0) {
          begin(args, job, layout, row, tile);
          fetch_query(args, job, row + kTileRows);
        }
        if (left <= step) fetch_out(args, job, row);
        if constexpr (kTileRows > 6) {
          pass<kTileRows, kModified>(args, job, layout, tile, program, factor, row, live, panel,
                                     count, strip, buffer);
        } else if (live > 4) {
          pass<6, kModified>(args, job, layout, tile, program, factor, row, live, panel, count,
                             strip, buffer);
        } else if (live > 2) {
          // Five rows run as six and three as four: the waste is less than the code of two more
          // kernels.
          pass<4, kModified>(args, job, layout, tile, program, factor, row, live, panel, count,
                             strip, buffer);
        } else if (live > 1) {
          pass<2, kModified>(args, job, layout, tile, program, factor, row, live, panel, count,
                             strip, buffer);
        } else {
          pass<1, kModified>(args, job, layout, tile, program, factor, row, live, panel, count,
                             strip, buffer);
        }
        if (left <= step) finish(args, job, layout, row, tile);
      }
    }
  }

  // `count` is a multiple of kLanes. A call of memset, or the string instruction that the compiler
  // makes of one, would cost more than these few stores.
  static TORCHYARD_INLINE void fill_zero(float* p, int64_t count) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < count; i += Isa::kLanes) Isa::store(p + i, Isa::zero());
  }

  // Asks for the queries, or for the place of the results, of the tile from `row` on, which
  // otherwise would be waited for one row after the other.
  static TORCHYARD_INLINE void fetch_query(const ForwardArgs& args, const RowsJob& job,
                                           int64_t row) {
    const Element* query = static_cast<const Element*>(args.query.data) +
                           job.batch * args.query.batch + job.query_head * args.query.head +
                           job.first_row * args.query.row;
    for (int64_t r = row; r < row + kTileRows && r < job.row_count; ++r) {
      for (int64_t d = 0; d < args.head_dim; d += kLine) {
        __builtin_prefetch(query + r * args.query.row + d);
      }
    }
  }
  static TORCHYARD_INLINE void fetch_out(const ForwardArgs& args, const RowsJob& job, int64_t row) {
    Element* out = static_cast<Element*>(args.out.data) + job.batch * args.out.batch +
                   job.query_head * args.out.head + job.first_row * args.out.row;
    for (int64_t r = row; r < row + kTileRows && r < job.row_count; ++r) {
      for (int64_t d = 0; d < args.value_dim; d += kLine) {
        __builtin_prefetch(out + r * args.out.row + d, 1);
      }
    }
  }

  static void begin(const ForwardArgs& args, const RowsJob& job, const L& layout, int64_t row,
                    const Tile<Format>& tile) {
    // A row that does not exist has a reference from the start: it must not hold up the others.
    for (int r = 0; r < kTileRows; ++r) {
      tile.reference[r] = row + r < job.row_count ? kMinusInfinity : 0.0f;
    }
    const Element* query = static_cast<const Element*>(args.query.data) +
                           job.batch * args.query.batch + job.query_head * args.query.head +
                           (job.first_row + row) * args.query.row;
    if constexpr (kWordStep<Format> > 1) {
      write_rows(args, job, layout, row, query, tile.query);
    } else {
      write_columns(args, job, layout, row, query, tile.query);
    }
    *tile.referenced = false;
    fill_zero(tile.weight, int64_t{kTileRows} * Isa::kLanes);
    fill_zero(tile.sum_v, kTileRows * layout.value_columns);
  }

  // Words of kTileRows rows, [word][row].
  static TORCHYARD_INLINE void write_columns(const ForwardArgs& args, const RowsJob& job,
                                             const L& layout, int64_t row, const Element* query,
                                             uint32_t* out) {
    // Vectors of kLanes rows are stored kTileRows words apart: what one writes too much, the next
    // corrects, so words go upwards and groups of rows downwards.
    constexpr int kLastGroup = (kTileRows - 1) / Isa::kLanes * Isa::kLanes;
    for (int group = kLastGroup; group >= 0; group -= Isa::kLanes) {
      for (int64_t word = 0; word < layout.key_words; word += Isa::kLanes) {
        constexpr int64_t kFull = int64_t{Isa::kLanes} * Format::kPair;
        const int64_t elements = args.head_dim - word * Format::kPair;
        const int available = static_cast<int>(elements < kFull ? elements : kFull);
        Vec block[Isa::kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < Isa::kLanes; ++i) {
          const int r = group + i;
          block[i] =
              r < kTileRows && row + r < job.row_count
                  ? Format::words(query + r * args.query.row + word * Format::kPair, available)
                  : Isa::zero();
        }
        Isa::transpose(block);
        const int64_t left = layout.key_words - word;
        const int64_t words = left < Isa::kLanes ? left : Isa::kLanes;
        for (int64_t w = 0; w < words; ++w) {
          Isa::store(out + (word + w) * kTileRows + group, block[w]);
        }
      }
    }
  }

  // The same, [row][word].
  static TORCHYARD_INLINE void write_rows(const ForwardArgs& args, const RowsJob& job,
                                          const L& layout, int64_t row, const Element* query,
                                          uint32_t* out) {
    constexpr int64_t kFull = int64_t{Isa::kLanes} * Format::kPair;
    for (int r = 0; r < kTileRows; ++r) {
      for (int64_t word = 0; word < layout.key_words; word += Isa::kLanes) {
        const int64_t left = args.head_dim - word * Format::kPair;
        const int available = static_cast<int>(left < kFull ? left : kFull);
        Isa::store(out + r * layout.key_words + word,
                   row + r < job.row_count
                       ? Format::words(query + r * args.query.row + word * Format::kPair, available)
                       : Isa::zero());
      }
    }
  }

  // One tile against up to kStripPanels panels.
  template <int kRows, bool kModified>
  static void pass(const ForwardArgs& args, const RowsJob& job, const L& layout,
                   const Tile<Format>& tile, ScoreTile<Format>* program, float factor, int64_t row,
                   int64_t live, int64_t first_panel, int count, uint32_t* strip, float* buffer) {
    using Attend = Softmax<Format, kRows>;
    TilePanel<kRows> keys[L::kStripPanels];
    const uint32_t* packed_keys[L::kStripPanels];
    const uint32_t* packed_values[L::kStripPanels];
    bool unsafe = false;
    int seen = 0;
    for (int i = 0; i < count; ++i) {
      const Panel& panel = job.panels[first_panel + i];
      TilePanel<kRows>& mine = keys[seen];
      mine.index = panel.index;
      mine.masked = panel.words != nullptr || panel.tail != ~uint64_t{0};
      if (mine.masked) {
        const int rows = static_cast<int>(live < kRows ? live : kRows);
        const Seen what = read_words<kRows>(panel, row, rows, mine.word);
        if (what == Seen::kNothing) continue;
        mine.masked = what == Seen::kSome;
        if (mine.masked) narrow(mine);
      }
      packed_keys[seen] =
          reinterpret_cast<const uint32_t*>(job.packed) + panel.index * layout.panel_words();
      packed_values[seen] = packed_keys[seen] + layout.key_panel_words();
      unsafe = unsafe || job.unsafe_values[panel.index] != 0;
      ++seen;
    }
    if (seen == 0) return;

    float weight[kRows * Isa::kLanes];
    fill_zero(weight, kRows * Isa::kLanes);
    // The exact softmax knows the true maximum, the optimistic one does not.
    const bool greatest = args.max_scores != nullptr;
    bool redo = unsafe || greatest;
    if constexpr (kModified) {
      redo = false;
      Modified<Format, kRows>::run(layout, tile, *program, factor, row, packed_keys, keys, seen,
                                   strip, weight, buffer, greatest);
    } else if (!redo) {
      for (int i = 0; i < seen; ++i) {
        uint32_t* out = strip + i * L::kPanelWords;
        if (*tile.referenced) {
          Attend::optimistic(layout, tile, factor, packed_keys[i], keys[i], out, weight);
        } else {
          Attend::first(layout, tile, factor, packed_keys[i], keys[i], out, weight, buffer);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        redo = redo || Isa::any_not_below(Isa::load(weight + r * Isa::kLanes), kOptimisticLimit);
      }
    }
    if (redo) {
      fill_zero(weight, kRows * Isa::kLanes);
      Attend::exact(layout, tile, factor, packed_keys, keys, seen, strip, weight, buffer);
      const int64_t columns = seen * kPanelKeys;
      for (int r = 0; greatest && r < kRows; ++r) {
        // Exact weights are at most 1: these are NaN.
        if (Isa::any_not_below(Isa::load(weight + r * Isa::kLanes), kOptimisticLimit)) {
          Attend::mark_nan(tile, r, buffer + r * columns, columns);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* total = tile.weight + r * Isa::kLanes;
      Isa::store(total, Isa::add(Isa::load(total), Isa::load(weight + r * Isa::kLanes)));
    }
    if (!unsafe) {
      Values<Format, kRows>::add(layout, tile, packed_values, keys, seen, strip);
      return;
    }
    for (int i = 0; i < seen; ++i) {
      const uint32_t* probabilities = strip + i * L::kPanelWords;
      if (keys[i].masked && job.unsafe_values[keys[i].index] != 0) {
        Values<Format, kRows>::add_visible(layout, tile, packed_values[i], keys[i], probabilities);
      } else {
        Values<Format, kRows>::add(layout, tile, packed_values + i, keys + i, 1, probabilities);
      }
    }
  }

  static void finish(const ForwardArgs& args, const RowsJob& job, const L& layout, int64_t row,
                     const Tile<Format>& tile) {
    const int64_t first = job.first_row + row;
    const int64_t left = job.row_count - row;
    const int rows = static_cast<int>(left < kTileRows ? left : kTileRows);
    const int64_t columns = args.value_dim;
    const int64_t row_stride = args.out.row;
    Element* out = static_cast<Element*>(args.out.data) + job.batch * args.out.batch +
                   job.query_head * args.out.head + first * row_stride;
    const int64_t head = job.batch * args.query_heads + job.query_head;
    float* lse = args.lse == nullptr ? nullptr : args.lse + head * args.query_rows + first;
    for (int r = 0; r < rows; ++r) {
      const float weight = Isa::sum(Isa::load(tile.weight + r * Isa::kLanes));
      // No key seen, or only scores of -inf: sum_v is 0 then, unless a value was not finite.
      const bool empty = weight == 0.0f;
      const Vec inverse = Isa::set1(empty ? 0.0f : 1.0f / weight);
      const float* sum_v = tile.sum_v + r * layout.value_columns;
      int64_t j = 0;
      for (; j + Isa::kLanes <= columns; j += Isa::kLanes) {
        const Vec v = empty ? Isa::zero() : Isa::mul(Isa::load(sum_v + j), inverse);
        Format::store_output(out + r * row_stride + j, v);
      }
      if (j < columns) {
        const Vec v = empty ? Isa::zero() : Isa::mul(Isa::load(sum_v + j), inverse);
        Isa::store_first(out + r * row_stride + j, v, static_cast<int>(columns - j));
      }
      const double unit = args.score == nullptr ? kLn2 : 1.0;
      if (args.max_scores != nullptr) {
        args.max_scores[head * args.query_rows + first + r] =
            static_cast<float>(tile.reference[r] * unit);
      }
      if (lse != nullptr) {
        lse[r] = empty ? kMinusInfinity
                       : static_cast<float>(tile.reference[r] * unit + __builtin_log(weight));
      }
    }
  }
};

}  // namespace
}  // namespace torchyard

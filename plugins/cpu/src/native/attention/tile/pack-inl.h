// Packs one kv head's keys and values into panels (layout.h).
#pragma once

#include <cstdint>

#include "attention/tile/fetches-inl.h"
#include "attention/tile/layout.h"
#include "attention/tile/rows_at-inl.h"

namespace torchyard {
namespace {

// Above this a probability of the optimistic softmax (at most kOptimisticLimit) could carry the sum
// past float32's range where the exact softmax would not.
constexpr uint32_t kUnsafeValueBits = 0x5f800000;  // 2^64

template <class Format>
struct Packer {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  using Element = typename Format::Element;
  using L = Layout<Format>;

  static void keys(const Element* first, int64_t row_stride, int count, int64_t head_dim,
                   int64_t key_words, uint32_t* out) {
    Fetches<StridedRows<Element>> nothing;
    keys(StridedRows<Element>{first, row_stride}, count, head_dim, key_words, nothing, out);
  }

  // Keys become columns: word w of key j goes to [j / kTileKeys][w][j % kTileKeys].
  template <class RowsAt>
  static void keys(const RowsAt at, int count, int64_t head_dim, int64_t key_words,
                   Fetches<RowsAt>& fetches, uint32_t* out) {
    constexpr int kLanes = Isa::kLanes;
    for (int group = 0; group < kPanelKeys; group += kLanes) {
      uint32_t* column =
          out + (group / L::kTileKeys) * key_words * L::kTileKeys + group % L::kTileKeys;
      for (int64_t word = 0; word < key_words; word += kLanes) {
        const int64_t left = head_dim - word * Format::kPair;
        const int available =
            static_cast<int>(left < kLanes * Format::kPair ? left : kLanes * Format::kPair);
        Vec block[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          block[i] = group + i < count
                         ? Format::words(at[group + i] + word * Format::kPair, available)
                         : Isa::zero();
        }
        Isa::transpose(block);
        const int64_t rows = key_words - word < kLanes ? key_words - word : kLanes;
        for (int64_t i = 0; i < rows; ++i) {
          Isa::store(column + (word + i) * L::kTileKeys, block[i]);
          fetches.step();
        }
      }
    }
  }

  static bool values(const Element* first, int64_t row_stride, int count, int64_t value_dim,
                     const L& layout, uint32_t* out) {
    Fetches<StridedRows<Element>> nothing;
    return values(StridedRows<Element>{first, row_stride}, count, value_dim, layout, nothing, out);
  }

  // Returns whether a value is not finite or so large that it needs the exact softmax.
  template <class RowsAt>
  static bool values(const RowsAt at, int count, int64_t value_dim, const L& layout,
                     Fetches<RowsAt>& fetches, uint32_t* out) {
    constexpr int kLanes = Isa::kLanes;
    Vec largest = Isa::zero();
    for (int64_t g = 0; g < layout.column_groups; ++g) {
      const int64_t start = layout.group_start(g);
      const int64_t width = layout.group_start(g + 1) - start;
      uint32_t* group = out + start * kLanes * L::kPanelWords;
      for (int word = 0; word < L::kPanelWords; ++word) {
        const int key = word * Format::kPair;
        for (int64_t j = 0; j < width; ++j) {
          const int64_t column = (start + j) * kLanes;
          const int64_t left = value_dim - column;
          const int available = static_cast<int>(left < kLanes ? left : kLanes);
          Vec words = Isa::zero();
          if (key < count) {
            const Element* next = key + 1 < count ? at[key + 1] + column : nullptr;
            words = Format::value_words(at[key] + column, next, available);
            largest = Format::magnitude(largest, words);
          }
          Isa::store(group + (word * width + j) * kLanes, words);
          fetches.step();
        }
      }
    }
    return Isa::largest_bits(largest) >= kUnsafeValueBits;
  }

  static void run(const ForwardArgs& args, const PackJob& job) {
    if (args.pages == nullptr) {
      pack<StridedRows<Element>>(args, job);
    } else {
      pack<PagedRows<Element>>(args, job);
    }
  }

 private:
  template <class RowsAt>
  static void pack(const ForwardArgs& args, const PackJob& job) {
    const L layout(args);
    const int64_t total = keys_of(args, job.batch);
    const int64_t panels = (total + kPanelKeys - 1) / kPanelKeys;
    const int64_t end = job.end_panel < panels ? job.end_panel : panels;
    const auto needed_from = [&job, end](int64_t panel) {
      while (panel < end && job.needed != nullptr && job.needed[panel] == 0) ++panel;
      return panel;
    };
    const auto count_of = [total](int64_t panel) {
      const int64_t left = total - panel * kPanelKeys;
      return static_cast<int>(left < kPanelKeys ? left : kPanelKeys);
    };
    typename RowsAt::Buffer keys_at;
    typename RowsAt::Buffer values_at;
    const auto place_keys = [&](int64_t panel) {
      return RowsAt::place(args, args.key, job.batch, job.key_head, panel * kPanelKeys,
                           count_of(panel), &keys_at);
    };
    // Values are fetched while keys are packed, the next panel's keys while values are, and the
    // first panel's keys at once.
    Fetches<RowsAt> fetches;
    int64_t panel = needed_from(job.first_panel);
    if (panel < end) {
      fetches.start(place_keys(panel), count_of(panel), bytes_of(args.head_dim), 1);
      fetches.step();
    }
    while (panel < end) {
      const int64_t next = needed_from(panel + 1);
      const int count = count_of(panel);
      uint32_t* out = reinterpret_cast<uint32_t*>(job.packed) + panel * layout.panel_words();
      const RowsAt values_rows = RowsAt::place(args, args.value, job.batch, job.key_head,
                                               panel * kPanelKeys, count, &values_at);
      fetches.start(values_rows, count, bytes_of(args.value_dim),
                    layout.key_words * (kPanelKeys / Isa::kLanes));
      keys(place_keys(panel), count, args.head_dim, layout.key_words, fetches, out);
      fetches = {};
      if (next < end) {
        fetches.start(place_keys(next), count_of(next), bytes_of(args.head_dim),
                      layout.value_vectors * L::kPanelWords);
      }
      job.unsafe_values[panel] = values(values_rows, count, args.value_dim, layout, fetches,
                                        out + layout.key_panel_words());
      panel = next;
    }
  }

  static int64_t bytes_of(int64_t elements) {
    return elements * static_cast<int64_t>(sizeof(Element));
  }
};

}  // namespace
}  // namespace torchyard

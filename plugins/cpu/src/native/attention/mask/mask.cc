#include "attention/mask/mask.h"

#include <algorithm>
#include <cstring>

namespace torchyard {

namespace {

uint64_t tail_of(int64_t keys, int64_t panel) {
  const int64_t left = keys - panel * kPanelKeys;
  return left >= kPanelKeys ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
}

uint64_t ones(int64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

// The lists of one row block of one head.
struct BlockRow {
  const MaskBlocks& mask;
  int64_t at;  // position in counts
  int32_t partial;
  int32_t full;

  BlockRow(const MaskBlocks& mask_, int64_t batch, int64_t head, int64_t row_block)
      : mask(mask_),
        at(((mask_.batches == 1 ? 0 : batch) * mask_.heads + (mask_.heads == 1 ? 0 : head)) *
               mask_.row_blocks +
           row_block),
        partial(mask_.partial_count[at]),
        full(mask_.full_count == nullptr ? 0 : mask_.full_count[at]) {}

  int64_t partial_block(int j) const { return mask.partial_index[at * mask.partial_width + j]; }
  int64_t full_block(int j) const { return mask.full_index[at * mask.full_width + j]; }
  const uint8_t* bits(int j) const {
    const int64_t row_bytes = ceil_div(mask.block_keys, 8);
    return mask.bits + (mask.first_partial[at] + j) * mask.block_rows * row_bytes;
  }
};

bool panels_fit_blocks(const MaskBlocks& mask) { return mask.block_keys % kPanelKeys == 0; }

int64_t list_fitting(int64_t keys, const BlockRow& row, int64_t row_in_block, Panel* panels) {
  const int64_t per_block = row.mask.block_keys / kPanelKeys;
  const int64_t row_bytes = row.mask.block_keys / 8;
  const int64_t total = ceil_div(keys, kPanelKeys);
  int64_t count = 0;
  // Panels have room for each key once, however often a list names its block.
  for (int j = 0; j < row.full; ++j) {
    const int64_t first = row.full_block(j) * per_block;
    for (int64_t p = first; p < std::min(first + per_block, total) && count < total; ++p) {
      panels[count++] = {p, nullptr, 0, tail_of(keys, p)};
    }
  }
  for (int j = 0; j < row.partial; ++j) {
    const int64_t first = row.partial_block(j) * per_block;
    const uint8_t* words = row.bits(j) + row_in_block * row_bytes;
    for (int64_t p = first; p < std::min(first + per_block, total) && count < total; ++p) {
      panels[count++] = {p, words + (p - first) * 8, row_bytes, tail_of(keys, p)};
    }
  }
  return count;
}

// Visibility of `rows` rows, one word per row and panel, for blocks that panels straddle.
class ComposedWords {
 public:
  ComposedWords(int64_t keys, int64_t rows, uint64_t* words)
      : total_(ceil_div(keys, kPanelKeys)), keys_(keys), rows_(rows), words_(words) {
    std::fill(words_, words_ + total_ * rows_, uint64_t{0});
  }

  void show_block(int64_t first_key, int64_t block_keys) {
    const int64_t end = std::min(first_key + block_keys, keys_);
    for (int64_t key = first_key; key < end;) {
      const int64_t panel = key / kPanelKeys;
      const int64_t stop = std::min(end, (panel + 1) * kPanelKeys);
      const uint64_t word = ones(stop - key) << (key % kPanelKeys);
      for (int64_t r = 0; r < rows_; ++r) words_[panel * rows_ + r] |= word;
      key = stop;
    }
  }

  void show_bits(int64_t first_key, int64_t block_keys, const uint8_t* bits, int64_t row_bytes) {
    const int64_t count = std::min(block_keys, keys_ - first_key);
    for (int64_t r = 0; r < rows_; ++r) {
      const uint8_t* row = bits + r * row_bytes;
      for (int64_t k = 0; k < count; k += 8) {
        const uint64_t byte = row[k / 8] & ones(std::min<int64_t>(8, count - k));
        const int64_t key = first_key + k;
        const int64_t shift = key % kPanelKeys;
        words_[key / kPanelKeys * rows_ + r] |= byte << shift;
        if (shift > kPanelKeys - 8 && (byte >> (kPanelKeys - shift)) != 0) {
          words_[(key / kPanelKeys + 1) * rows_ + r] |= byte >> (kPanelKeys - shift);
        }
      }
    }
  }

  int64_t list(Panel* panels) const {
    int64_t count = 0;
    for (int64_t p = 0; p < total_; ++p) {
      const uint64_t* word = words_ + p * rows_;
      if (std::all_of(word, word + rows_, [](uint64_t w) { return w == 0; })) continue;
      panels[count++] = {p, reinterpret_cast<const uint8_t*>(word), sizeof(uint64_t),
                         tail_of(keys_, p)};
    }
    return count;
  }

 private:
  int64_t total_;
  int64_t keys_;
  int64_t rows_;
  uint64_t* words_;
};

int64_t list_composed(int64_t keys, const BlockRow& row, int64_t row_in_block, int64_t rows,
                      Panel* panels, uint64_t* words) {
  const int64_t block_keys = row.mask.block_keys;
  const int64_t row_bytes = ceil_div(block_keys, 8);
  ComposedWords composed(keys, rows, words);
  for (int j = 0; j < row.full; ++j)
    composed.show_block(row.full_block(j) * block_keys, block_keys);
  for (int j = 0; j < row.partial; ++j) {
    composed.show_bits(row.partial_block(j) * block_keys, block_keys,
                       row.bits(j) + row_in_block * row_bytes, row_bytes);
  }
  return composed.list(panels);
}

void mark_block(const ForwardArgs& args, int64_t keys, int64_t block, uint8_t* needed) {
  const int64_t first = block * args.mask->block_keys;
  const int64_t end = std::min(first + args.mask->block_keys, keys);
  for (int64_t p = first / kPanelKeys; p * kPanelKeys < end; ++p) needed[p] = 1;
}

}  // namespace

namespace {

// Whether `count` lies within a list of `width` places, and each of its numbers within `blocks`.
bool list_fits(const char* counts, const char* indices, int64_t count, const int32_t* index,
               int64_t width, int64_t blocks, MaskFault* out) {
  if (count < 0 || count > width) {
    *out = {counts, count, width};
    return false;
  }
  for (int64_t j = 0; j < count; ++j) {
    if (index[j] >= 0 && index[j] < blocks) continue;
    *out = {indices, index[j], blocks - 1};
    return false;
  }
  return true;
}

}  // namespace

MaskFault mask_fault(const ForwardArgs& args) {
  const MaskBlocks& mask = *args.mask;
  // A mask for a cache's whole capacity lists blocks beyond the current lengths.
  const int64_t blocks =
      args.pages == nullptr ? ceil_div(args.keys, mask.block_keys) : int64_t{INT32_MAX} + 1;
  MaskFault fault = {nullptr, 0, 0};
  for (int64_t at = 0; at < mask.batches * mask.heads * mask.row_blocks; ++at) {
    const int64_t count = mask.partial_count[at];
    if (!list_fits("kv_num_blocks", "kv_indices", count,
                   mask.partial_index + at * mask.partial_width, mask.partial_width, blocks,
                   &fault)) {
      return fault;
    }
    const int64_t first = mask.first_partial[at];
    // Written so that no sum overflows.
    if (count > 0 && (first < 0 || first > mask.bit_blocks - count)) {
      return {"first_partial", first, mask.bit_blocks - count};
    }
    if (mask.full_count != nullptr &&
        !list_fits("full_kv_num_blocks", "full_kv_indices", mask.full_count[at],
                   mask.full_index + at * mask.full_width, mask.full_width, blocks, &fault)) {
      return fault;
    }
  }
  return fault;
}

size_t composed_bytes(const ForwardArgs& args, int64_t rows) {
  if (args.mask == nullptr || panels_fit_blocks(*args.mask)) return 0;
  return static_cast<size_t>(panel_count(args) * rows) * sizeof(uint64_t);
}

int64_t list_panels(const ForwardArgs& args, int64_t batch, int64_t query_head, int64_t first_row,
                    int64_t rows, Panel* panels, std::byte* words) {
  const int64_t keys = keys_of(args, batch);
  if (args.mask == nullptr) {
    const int64_t total = ceil_div(keys, kPanelKeys);
    for (int64_t p = 0; p < total; ++p) panels[p] = {p, nullptr, 0, tail_of(keys, p)};
    return total;
  }
  const MaskBlocks& mask = *args.mask;
  const BlockRow row(mask, batch, query_head, first_row / mask.block_rows);
  const int64_t row_in_block = first_row % mask.block_rows;
  if (panels_fit_blocks(mask)) return list_fitting(keys, row, row_in_block, panels);
  return list_composed(keys, row, row_in_block, rows, panels, reinterpret_cast<uint64_t*>(words));
}

void mark_needed(const ForwardArgs& args, int64_t batch, int64_t key_head, uint8_t* needed) {
  const MaskBlocks& mask = *args.mask;
  const int64_t group = args.query_heads / args.key_heads;
  const int64_t heads = mask.heads == 1 ? 1 : group;
  const int64_t keys = keys_of(args, batch);
  for (int64_t g = 0; g < heads; ++g) {
    for (int64_t b = 0; b < mask.row_blocks; ++b) {
      const BlockRow row(mask, batch, key_head * group + g, b);
      for (int j = 0; j < row.full; ++j) mark_block(args, keys, row.full_block(j), needed);
      for (int j = 0; j < row.partial; ++j) mark_block(args, keys, row.partial_block(j), needed);
    }
  }
}

void row_words(const ForwardArgs& args, int64_t batch, int64_t query_head, int64_t row,
               int64_t first_key, int64_t end_key, uint64_t* words, int64_t stride) {
  const MaskBlocks& mask = *args.mask;
  const BlockRow lists(mask, batch, query_head, row / mask.block_rows);
  const int64_t size = mask.block_keys;
  const auto touches = [&](int64_t block) {
    return block * size < end_key && (block + 1) * size > first_key;
  };
  for (int j = 0; j < lists.full; ++j) {
    const int64_t block = lists.full_block(j);
    if (!touches(block)) continue;
    const int64_t end = std::min((block + 1) * size, end_key);
    for (int64_t key = std::max(block * size, first_key); key < end;) {
      const int64_t panel = (key - first_key) / kPanelKeys;
      const int64_t stop = std::min(end, first_key + (panel + 1) * kPanelKeys);
      words[panel * stride] |= ones(stop - key) << ((key - first_key) % kPanelKeys);
      key = stop;
    }
  }
  const int64_t row_bytes = ceil_div(size, 8);
  for (int j = 0; j < lists.partial; ++j) {
    const int64_t block = lists.partial_block(j);
    if (!touches(block)) continue;
    const uint8_t* bits = lists.bits(j) + row % mask.block_rows * row_bytes;
    const int64_t begin = std::max<int64_t>(0, first_key - block * size) / 8 * 8;
    const int64_t count = std::min(size, end_key - block * size);
    for (int64_t k = begin; k < count; k += 8) {
      uint64_t byte = bits[k / 8] & ones(std::min<int64_t>(8, count - k));
      int64_t place = block * size + k - first_key;
      if (place < 0) {
        byte >>= -place;
        place = 0;
      }
      const int64_t shift = place % kPanelKeys;
      words[place / kPanelKeys * stride] |= byte << shift;
      if (shift > kPanelKeys - 8 && (byte >> (kPanelKeys - shift)) != 0) {
        words[(place / kPanelKeys + 1) * stride] |= byte >> (kPanelKeys - shift);
      }
    }
  }
}

int64_t listed_blocks(const MaskBlocks& mask, int64_t row_block) {
  int64_t listed = 0;
  for (int64_t head = 0; head < mask.batches * mask.heads; ++head) {
    const int64_t at = head * mask.row_blocks + row_block;
    listed += mask.partial_count[at];
    if (mask.full_count != nullptr) listed += mask.full_count[at];
  }
  return listed;
}

}  // namespace torchyard

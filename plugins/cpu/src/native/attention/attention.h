// Attention forward.
//
//   s(i, j)   = scale * sum_d query(b, h, i, d) * key(b, g, j, d)          g = h / (Hq / Hkv)
//               then what a score program makes of it
//   p(i, j)   = exp(s(i, j) - lse(b, h, i))  for visible (i, j), 0 elsewhere
//   lse       = ln sum over visible j of exp(s(i, j))                      natural logarithm
//   out(b, h, i, :) = sum_j p(i, j) * value(b, g, j, :)
//
//   max_scores = max over visible j of s(i, j); -inf where there is none, NaN where one is NaN
//
// A row with no visible key, or whose visible scores are all -inf, has out = 0 and lse = -inf.
// The contents of an invisible key or value, NaN and infinity included, do not affect out or lse.
// A NaN in a visible score makes its row's out and lse NaN; +inf in one does the same.
//
// Elements are float32, bfloat16 or float16; scores, softmax and all sums are float32. Where the
// instruction set multiplies bfloat16 pairs, p is rounded to bfloat16 before the product with
// value. Results are rounded once, to nearest even; in float16 those above 65504 become infinite.
//
// Sums over values are divided by the sum of weights at the end, as in every flash attention: where
// they leave float32's range before that, out is infinite (values above 3e38 / visible keys).
//
// The caller guarantees: Hq a multiple of Hkv, 1 <= D, Dv <= kMaxHeadDim, the last dimension of
// every tensor contiguous, pointers aligned to elements, no overlap of out or lse
// with an input, and a MaskBlocks whose lists and bits are within the bounds stated below.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/score.h"
#include "base/dtype.h"
#include "base/isa/kernel_table.h"
#include "base/status.h"

namespace torchyard {

constexpr int kMaxHeadDim = 256;

// Keys are packed, masked and skipped by panels of this many: one bit each in a 64-bit word.
constexpr int kPanelKeys = 64;

// A tensor [batch, head, row, element] with unit stride in the last dimension; strides in elements,
// of any sign.
struct Strided {
  const void* data;
  int64_t batch;
  int64_t head;
  int64_t row;
};

struct StridedOutput {
  void* data;
  int64_t batch;
  int64_t head;
  int64_t row;
};

// Which (row, key) pairs are visible, by blocks of block_rows x block_keys.
//
// `*_count` is int32 [batches, heads, row_blocks], `*_index` int32 [batches, heads, row_blocks,
// *_width], `first_partial` int64 like the counts; all contiguous. `bits` is uint8
// [partial blocks, block_rows, ceil(block_keys / 8)]: bit k % 8 of byte k / 8 is key k of the
// block. The j-th partial block of a row block has slot first_partial + j.
struct MaskBlocks {
  int64_t block_rows;
  int64_t block_keys;
  int64_t row_blocks;
  int64_t partial_width;  // places per row of partial_index, used or not
  int64_t full_width;
  int64_t batches;  // 1 or B
  int64_t heads;    // 1 or Hq
  const int32_t* partial_count;
  const int32_t* partial_index;
  const int32_t* full_count;  // nullptr: no full blocks
  const int32_t* full_index;
  const uint8_t* bits;
  const int64_t* first_partial;
  int64_t bit_blocks = 0;  // partial blocks that bits holds; read by mask_fault alone
};

// Into which pieces the work is cut: which is fastest differs by machine, and which is right does
// not. `keys_per_split` and `backward_rows` decide the order of sums, and with it the last bits.
struct Tunables {
  int64_t rows_per_item = 128;          // forward: rows that a thread takes at a time
  int64_t keys_per_split = 512;         // decoding: keys of a state; whole panels
  int64_t backward_rows = 132;          // backward: rows whose weights are held at a time
  int64_t backward_bytes = 720 * 1024;  // backward: a thread's working memory
};

// Where each sequence's keys and values lie in a cache: `table` is int32 [B, width], the pages of a
// sequence in order, and `lengths` int32 [B] its keys; both contiguous. A page holds page_keys keys
// of every head: in `key` and `value` the stride `batch` leads from page to page, and `row` from
// key to key within one.
struct Pages {
  const int32_t* table;
  int64_t width;
  const int32_t* lengths;
  int64_t page_keys;
};

struct ForwardArgs {
  int64_t batches;
  int64_t query_heads;
  int64_t key_heads;
  int64_t query_rows;
  int64_t keys;  // with pages, those of the longest sequence
  int64_t head_dim;
  int64_t value_dim;
  Strided query;
  Strided key;
  Strided value;
  StridedOutput out;
  float* lse;         // [batches, query_heads, query_rows] contiguous, or nullptr
  float* max_scores;  // likewise
  double scale;
  const MaskBlocks* mask;     // nullptr: every pair is visible
  const ScoreProgram* score;  // nullptr: scores are not modified
  Tunables tunables;
  const Pages* pages = nullptr;  // nullptr: keys and values lie at strides
};

// The keys of a batch.
inline int64_t keys_of(const ForwardArgs& args, int64_t batch) {
  return args.pages == nullptr ? args.keys : args.pages->lengths[batch];
}

// A panel of keys that some row of an item sees.
struct Panel {
  int64_t index;
  // Visibility of the item's first row: one little-endian word per row, `row_bytes` apart,
  // unaligned. nullptr: every row sees every key that `tail` allows.
  const uint8_t* words;
  int64_t row_bytes;
  uint64_t tail;  // the keys that exist
};

// Work for one kv head's panels [first_panel, end_panel).
struct PackJob {
  int64_t batch;
  int64_t key_head;
  int64_t first_panel;
  int64_t end_panel;
  const uint8_t* needed;   // per panel of the head; nullptr: all
  std::byte* packed;       // the head's panels
  uint8_t* unsafe_values;  // per panel of the head: set to whether a value is huge or not finite
};

// Work for consecutive rows of one query head.
struct RowsJob {
  int64_t batch;
  int64_t query_head;
  int64_t first_row;
  int64_t row_count;
  const Panel* panels;
  int64_t panel_count;
  const std::byte* packed;
  const uint8_t* unsafe_values;
  std::byte* scratch;
};

// One compiled kernel. `pack` must have run for every panel that `rows` is given.
struct ForwardKernel {
  const char* name;
  const char* isa;
  DType dtype;
  FeatureSet required;
  int tile_rows;
  size_t (*packed_panel_bytes)(const ForwardArgs&);
  size_t (*scratch_bytes)(const ForwardArgs&, int64_t rows);
  void (*pack)(const ForwardArgs&, const PackJob&);
  void (*rows)(const ForwardArgs&, const RowsJob&);
};

extern const KernelTable<ForwardKernel> kForwardKernels;

// Runs `kernel`, whose `required` features the caller has found on this processor, on up to
// `threads` threads. The result has the same bits for every number of threads. `poison` fills all
// working memory with NaN first, so that a test sees a read of what was never written. With
// kIndexOutOfRange the program's failure is filled in, and out and lse hold nothing of use.
Status attention_forward(const ForwardArgs& args, const ForwardKernel& kernel, int threads,
                         bool poison);

}  // namespace torchyard

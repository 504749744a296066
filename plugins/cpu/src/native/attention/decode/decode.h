// Attention forward for few query rows per kv head: decoding.
//
// The same function as attention.h's. The query heads of a kv head and their rows are folded into
// one tile of up to kMaxDecodeRows rows, which is multiplied with each key and value once, in
// place: nothing is packed. Keys are cut into splits of a fixed number; threads draw (kv head,
// split) pairs, and whoever finishes a head's last split merges them in order, so the result has
// the same bits for every number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention.h"

namespace torchyard {

constexpr int kMaxDecodeRows = 16;

// One split of one kv head. Rows are numbered h * query_rows + r, with h counting the kv head's
// query heads.
struct DecodeJob {
  int64_t batch;
  int64_t key_head;
  int64_t first_key;
  int64_t end_key;
  int rows;
  // Visibility, one word per row and panel of the split, [panel][kMaxDecodeRows]; nullptr: all.
  const uint64_t* words;
  // The state that is left: sums over values [rows][value columns], then sums of weights [rows] and
  // references [rows], in units of log2; where a program modifies the scores, in natural ones.
  float* state;
  std::byte* scratch;
  const void* next_key;  // the first key of the thread's next job, to be fetched early; or nullptr
};

struct DecodeKernel {
  const char* name;
  const char* isa;
  DType dtype;
  FeatureSet required;
  size_t (*state_floats)(const ForwardArgs&);  // of one split
  size_t (*scratch_bytes)(const ForwardArgs&);
  void (*split)(const ForwardArgs&, const DecodeJob&);
  // Merges `count` states that lie one after another and writes out and lse.
  void (*finish)(const ForwardArgs&, const DecodeJob&, const float* states, int64_t count);
};

extern const KernelTable<DecodeKernel> kDecodeKernels;

// Whether the sizes suit a decode kernel: a kv head's query heads times the query rows.
bool suits_decode(const ForwardArgs& args);

// As attention_forward, for arguments that suits_decode.
Status attention_decode(const ForwardArgs& args, const DecodeKernel& kernel, int threads,
                        bool poison);

}  // namespace torchyard

// From a mask by blocks to what the kernels read: lists of 64-key panels with one word per row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention.h"
#include "base/math.h"

namespace torchyard {

inline int64_t panel_count(const ForwardArgs& args) { return ceil_div(args.keys, kPanelKeys); }

// Bytes that list_panels needs for `words` with items of up to `rows` rows; 0 where panels are
// wholly inside blocks and the mask's own bits are used.
size_t composed_bytes(const ForwardArgs& args, int64_t rows);

// Lists the panels that rows [first_row, first_row + rows) of a query head see, full blocks first,
// so that a row's reference comes from a panel with many visible keys. The rows lie in one row
// block. `panels` has room for panel_count(args) entries; returns how many were written.
int64_t list_panels(const ForwardArgs& args, int64_t batch, int64_t query_head, int64_t first_row,
                    int64_t rows, Panel* panels, std::byte* words);

// Sets needed[panel] to 1 for each panel that any row of any of the kv head's query heads sees.
void mark_needed(const ForwardArgs& args, int64_t batch, int64_t key_head, uint8_t* needed);

// Adds to words[panel * stride] the visibility of one row, for the panels of keys [first_key,
// end_key); first_key begins a panel. Bits of keys beyond the end are unspecified.
void row_words(const ForwardArgs& args, int64_t batch, int64_t query_head, int64_t row,
               int64_t first_key, int64_t end_key, uint64_t* words, int64_t stride);

// What of a mask's lists is out of bounds; null where nothing is.
struct MaskFault {
  const char* what;  // the name of the list
  int64_t value;     // what it holds
  int64_t most;      // the greatest that fits; the least is 0
};

// Looks through the lists that a call will read: a caller may have written to them since the mask
// was made.
MaskFault mask_fault(const ForwardArgs& args);

// The number of listed blocks of a row block, summed over all heads of the mask.
int64_t listed_blocks(const MaskBlocks& mask, int64_t row_block);

}  // namespace torchyard

// The order in which threads draw the work of one call.
//
// Tickets 0, 1, 2, ... are drawn from one counter. A kv head's pack tickets come before its row
// tickets, by `lookahead` heads, and packed heads live in a ring of `ring` slots. A ticket may have
// to wait for tickets drawn earlier, never for later ones, so whoever draws the lowest unfinished
// ticket can always go on: no barrier, no deadlock, for any number of threads.
//
// Where there are many short kv heads, a ticket is a whole one instead, in a slot of its thread:
// nobody waits, and packed keys stay in the caches of the processor that packed them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/attention.h"
#include "attention/mask/mask.h"

namespace torchyard {

// Panels that a pack ticket packs.
constexpr int64_t kPanelsPerPack = 8;

// Items per thread that keep all threads busy to the end although items differ in size.
constexpr int64_t kItemsPerThread = 4;

// Whole heads per thread that keep all threads busy to within a few percent of the end.
constexpr int64_t kHeadsPerThread = 16;

struct Ticket {
  enum class Kind : uint8_t { kPack, kRows, kHead };
  Kind kind;
  int64_t head;  // batch * key_heads + key head
  int64_t part;  // of the head's packs_per_head or items_per_head; 0 for the head itself
};

struct Schedule {
  int64_t heads;
  int64_t panels;
  int64_t packs_per_head;
  int64_t group;       // query heads per kv head
  int64_t row_blocks;  // the mask's, or one for all rows
  int64_t block_rows;
  int64_t splits;         // items per row block
  int64_t rows_per_item;  // a multiple of the kernel's tile, but for the end of a block
  int64_t items_per_head;
  int64_t lookahead;
  int64_t ring;
  bool whole_heads;
  int64_t tickets;

  Schedule(const ForwardArgs& args, const ForwardKernel& kernel, int threads);

  Ticket ticket(int64_t number) const;
};

inline Schedule::Schedule(const ForwardArgs& args, const ForwardKernel& kernel, int threads)
    : heads(args.batches * args.key_heads),
      panels(panel_count(args)),
      packs_per_head(ceil_div(panels, kPanelsPerPack)),
      group(args.query_heads / args.key_heads),
      row_blocks(args.mask == nullptr ? 1 : args.mask->row_blocks),
      block_rows(args.mask == nullptr ? args.query_rows
                                      : std::min(args.mask->block_rows, args.query_rows)) {
  // Items are cut at whole tiles: which rows share a tile, and with that every bit of the result,
  // does not depend on the number of threads.
  const int64_t tile = kernel.tile_rows;
  const int64_t tiles = ceil_div(block_rows, tile);
  int64_t wanted = std::max<int64_t>(
      1, (block_rows + args.tunables.rows_per_item / 2) / args.tunables.rows_per_item);
  if (threads > 1) {
    const int64_t blocks = heads * group * row_blocks;
    wanted = std::max(wanted, ceil_div(kItemsPerThread * threads, blocks));
  }
  rows_per_item = ceil_div(tiles, std::min(wanted, tiles)) * tile;
  splits = ceil_div(block_rows, rows_per_item);
  items_per_head = group * row_blocks * splits;

  // Long heads would take a packed one of memory per thread.
  whole_heads = threads > 1 && packs_per_head <= 1 && heads >= kHeadsPerThread * threads;
  lookahead = threads == 1 || whole_heads ? 0 : std::min(heads, ceil_div(threads, items_per_head));
  ring = whole_heads ? threads : std::min(heads, 2 * lookahead + 1);
  tickets = whole_heads ? heads : heads * (packs_per_head + items_per_head);
}

inline Ticket Schedule::ticket(int64_t number) const {
  if (whole_heads) return {Ticket::Kind::kHead, number, 0};
  const int64_t ahead = lookahead * packs_per_head;
  if (number < ahead) {
    return {Ticket::Kind::kPack, number / packs_per_head, number % packs_per_head};
  }
  number -= ahead;
  const int64_t per_step = packs_per_head + items_per_head;
  const int64_t full_steps = heads - lookahead;
  const int64_t step = std::min(number / per_step, full_steps);
  int64_t part = number - step * per_step;
  if (step == full_steps) {
    return {Ticket::Kind::kRows, step + part / items_per_head, part % items_per_head};
  }
  if (part < packs_per_head) return {Ticket::Kind::kPack, step + lookahead, part};
  return {Ticket::Kind::kRows, step, part - packs_per_head};
}

}  // namespace torchyard

#include "attention/forward/schedule.h"

#include <algorithm>

#include "attention/mask/mask.h"

namespace torchyard {

namespace {

constexpr int64_t kPanelsPerPack = 8;

// Items per thread that keep all threads busy to the end although items differ in size.
constexpr int64_t kItemsPerThread = 4;

// Whole heads per thread that keep all threads busy to within a few percent of the end.
constexpr int64_t kHeadsPerThread = 16;

}  // namespace

Schedule::Schedule(const ForwardArgs& args, const ForwardKernel& kernel, int threads)
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

Ticket Schedule::ticket(int64_t number) const {
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

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

#include <cstdint>

#include "attention/attention.h"

namespace torchyard {

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

}  // namespace torchyard

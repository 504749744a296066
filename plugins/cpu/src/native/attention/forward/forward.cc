// Working memory and threads of one call; the arithmetic is the kernel's.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "attention/attention.h"
#include "attention/extent.h"
#include "attention/forward/schedule.h"
#include "attention/mask/mask.h"
#include "base/threads.h"

namespace torchyard {

namespace {

struct RankedBlock {
  int64_t listed;
  int64_t block;
};

// What the threads of one call count together.
struct HeadProgress {
  std::atomic<int64_t> packed;
  std::atomic<int64_t> finished;
};

// Where each piece of working memory lies in the caller's one block.
struct Plan {
  size_t packed_bytes;  // one head
  size_t packed_at;     // [ring]
  size_t unsafe_at;     // [ring][panels]
  size_t needed_at;     // [heads][panels]
  size_t order_at;      // [row_blocks] RankedBlock, heaviest first
  size_t progress_at;   // [heads]
  size_t thread_bytes;  // one thread: panels, composed words, kernel scratch
  size_t words_offset;
  size_t kernel_offset;
  size_t thread_at;
  size_t total;

  Plan(const ForwardArgs& args, const ForwardKernel& kernel, const Schedule& schedule,
       int threads) {
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    ScratchLayout layout;
    packed_bytes = page_rounded(kernel.packed_panel_bytes(args) * size(schedule.panels));
    packed_at = layout.add(packed_bytes * size(schedule.ring));
    unsafe_at = layout.add(size(schedule.ring * schedule.panels));
    needed_at = layout.add(args.mask == nullptr ? 0 : size(schedule.heads * schedule.panels));
    order_at = layout.add(size(schedule.row_blocks) * sizeof(RankedBlock));
    progress_at = layout.add(size(schedule.heads) * sizeof(HeadProgress));
    words_offset = page_rounded(size(schedule.panels) * sizeof(Panel));
    kernel_offset = words_offset + page_rounded(composed_bytes(args, schedule.rows_per_item));
    thread_bytes = kernel_offset + page_rounded(kernel.scratch_bytes(args, schedule.rows_per_item));
    thread_at = layout.add(thread_bytes * size(threads));
    total = layout.bytes();
  }
};

class Call {
 public:
  Call(const ForwardArgs& args, const ForwardKernel& kernel, const Schedule& schedule,
       const Plan& plan, std::byte* memory)
      : args_(args),
        kernel_(kernel),
        schedule_(schedule),
        plan_(plan),
        memory_(memory),
        order_(reinterpret_cast<RankedBlock*>(memory + plan.order_at)),
        progress_(reinterpret_cast<HeadProgress*>(memory + plan.progress_at)) {
    for (int64_t h = 0; h < schedule.heads; ++h) new (&progress_[h]) HeadProgress{{0}, {0}};
    for (int64_t b = 0; b < schedule.row_blocks; ++b) {
      order_[b] = {args.mask == nullptr ? 0 : listed_blocks(*args.mask, b), b};
    }
    if (args.mask == nullptr) return;
    std::sort(order_, order_ + schedule.row_blocks, [](RankedBlock a, RankedBlock b) {
      return a.listed != b.listed ? a.listed > b.listed : a.block < b.block;
    });
    std::memset(memory + plan.needed_at, 0, static_cast<size_t>(schedule.heads * schedule.panels));
    for (int64_t h = 0; h < schedule.heads; ++h) {
      mark_needed(args, h / args.key_heads, h % args.key_heads, needed(h));
    }
  }

  // Draws tickets until none are left. Runs on every thread.
  void work() {
    const int thread = next_thread_.fetch_add(1);
    std::byte* mine = memory_ + plan_.thread_at + static_cast<size_t>(thread) * plan_.thread_bytes;
    for (;;) {
      const int64_t number = next_ticket_.fetch_add(1, std::memory_order_relaxed);
      if (number >= schedule_.tickets) return;
      const Ticket ticket = schedule_.ticket(number);
      if (ticket.kind == Ticket::Kind::kHead) {
        whole_head(ticket.head, thread, mine);
      } else if (ticket.kind == Ticket::Kind::kPack) {
        pack_in_turn(ticket);
      } else {
        rows_in_turn(ticket, mine);
      }
    }
  }

 private:
  uint8_t* needed(int64_t head) const {
    return reinterpret_cast<uint8_t*>(memory_ + plan_.needed_at) + head * schedule_.panels;
  }
  std::byte* packed(int64_t slot) const {
    return memory_ + plan_.packed_at + static_cast<size_t>(slot) * plan_.packed_bytes;
  }
  uint8_t* unsafe_values(int64_t slot) const {
    return reinterpret_cast<uint8_t*>(memory_ + plan_.unsafe_at) + slot * schedule_.panels;
  }

  void whole_head(int64_t head, int64_t slot, std::byte* mine) {
    for (int64_t part = 0; part < schedule_.packs_per_head; ++part) pack(head, part, slot);
    for (int64_t part = 0; part < schedule_.items_per_head; ++part) rows(head, part, slot, mine);
  }

  void pack_in_turn(const Ticket& ticket) {
    const int64_t head = ticket.head;
    if (head >= schedule_.ring) {
      wait_for(progress_[head - schedule_.ring].finished, schedule_.items_per_head);
    }
    pack(head, ticket.part, head % schedule_.ring);
    progress_[head].packed.fetch_add(1, std::memory_order_release);
  }

  void rows_in_turn(const Ticket& ticket, std::byte* mine) {
    wait_for(progress_[ticket.head].packed, schedule_.packs_per_head);
    rows(ticket.head, ticket.part, ticket.head % schedule_.ring, mine);
    progress_[ticket.head].finished.fetch_add(1, std::memory_order_release);
  }

  void pack(int64_t head, int64_t part, int64_t slot) {
    const int64_t per_pack = ceil_div(schedule_.panels, schedule_.packs_per_head);
    PackJob job;
    job.batch = head / args_.key_heads;
    job.key_head = head % args_.key_heads;
    job.first_panel = std::min(part * per_pack, schedule_.panels);
    job.end_panel = std::min(job.first_panel + per_pack, schedule_.panels);
    job.needed = args_.mask == nullptr ? nullptr : needed(head);
    job.packed = packed(slot);
    job.unsafe_values = unsafe_values(slot);
    kernel_.pack(args_, job);
  }

  void rows(int64_t head, int64_t part, int64_t slot, std::byte* mine) {
    const int64_t per_block = schedule_.group * schedule_.splits;
    const int64_t block = order_[part / per_block].block;
    const int64_t within = part % per_block;
    const int64_t start = (within % schedule_.splits) * schedule_.rows_per_item;
    const int64_t first = block * schedule_.block_rows + start;
    const int64_t count =
        std::min({schedule_.rows_per_item, schedule_.block_rows - start, args_.query_rows - first});
    if (count <= 0) return;
    RowsJob job;
    job.batch = head / args_.key_heads;
    job.query_head = head % args_.key_heads * schedule_.group + within / schedule_.splits;
    job.first_row = first;
    job.row_count = count;
    Panel* panels = reinterpret_cast<Panel*>(mine);
    job.panel_count = list_panels(args_, job.batch, job.query_head, first, count, panels,
                                  mine + plan_.words_offset);
    job.panels = panels;
    job.packed = packed(slot);
    job.unsafe_values = unsafe_values(slot);
    job.scratch = mine + plan_.kernel_offset;
    kernel_.rows(args_, job);
  }

  const ForwardArgs& args_;
  const ForwardKernel& kernel_;
  const Schedule& schedule_;
  const Plan& plan_;
  std::byte* memory_;
  RankedBlock* order_;
  HeadProgress* progress_;
  std::atomic<int64_t> next_ticket_{0};
  std::atomic<int> next_thread_{0};
};

}  // namespace

Status attention_forward(const ForwardArgs& args, const ForwardKernel& kernel, int threads,
                         bool poison) {
  if (args.batches == 0 || args.query_heads == 0 || args.query_rows == 0) return Status::kOk;
  threads = std::max(threads, 1);
  const Schedule schedule(args, kernel, threads);
  threads = static_cast<int>(std::min<int64_t>(threads, schedule.tickets));
  const Plan plan(args, kernel, schedule, threads);
  Scratch& scratch = thread_scratch();
  std::byte* memory = scratch.acquire(plan.total);
  if (memory == nullptr) return Status::kOutOfMemory;
  if (poison) std::memset(memory, 0xff, plan.total);
  Span written = extent_of(
      args.out, {args.batches, args.query_heads, args.query_rows, args.value_dim}, kernel.dtype);
  expect_writes(&written, 1);
  Call call(args, kernel, schedule, plan, memory);
  run_on_threads(threads, [](void* c) { static_cast<Call*>(c)->work(); }, &call);
  scratch.release();
  const bool failed = args.score != nullptr && args.score->failure->step >= 0;
  return failed ? Status::kIndexOutOfRange : Status::kOk;
}

}  // namespace torchyard

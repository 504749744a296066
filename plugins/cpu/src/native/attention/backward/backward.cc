// Working memory and threads of one backward; the arithmetic is the kernel's.
#include "attention/backward/backward.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "attention/extent.h"
#include "attention/mask/mask.h"
#include "base/threads.h"

namespace torchyard {

namespace {

using Counter = std::atomic<int64_t>;

constexpr int64_t kMostPanels = 8;

// Key blocks per thread that keep all threads busy to the end although they differ in size.
constexpr int64_t kBlocksPerThread = 4;

// For how many threads the work is cut where the cuts decide the order of sums.
constexpr int64_t kAssumedThreads = 4;

// Copies of the captured tensors' sums: so many key blocks can add at a time. More than a few
// threads need all of them only for small tensors.
constexpr size_t kCopiesBytes = size_t{16} << 20;
constexpr int64_t kMostCopies = 32;

// Elements of a captured tensor's gradient that one thread writes at a time.
constexpr int64_t kChunk = 8192;

bool adds_to_shared(const ScoreGradient* score) {
  if (score == nullptr) return false;
  for (int64_t i = 0; i < score->tensor_count; ++i) {
    if (score->tensors[i].shared != 0) return true;
  }
  return false;
}

struct Schedule {
  int64_t heads;  // kv heads of all batches
  int64_t group;  // query heads per kv head
  int64_t panels;
  int64_t panels_per_block;
  int64_t key_blocks;  // per head; one where there are no keys
  int64_t block_rows;  // of the mask, or all rows
  int64_t rows_per_block;
  int64_t splits;      // blocks of rows per row block of the mask
  int64_t row_blocks;  // blocks of rows per query head
  int64_t in_flight;   // heads that tickets take turns among, so that threads seldom share one
  bool whole_heads;    // one key block holds all keys of a head: nobody else adds to its sums
  int64_t ring;        // heads whose sums of dquery exist at a time
  int64_t tickets;

  Schedule(const BackwardArgs& args, const BackwardKernel& kernel, int64_t threads)
      : heads(args.call.batches * args.call.key_heads),
        group(args.call.key_heads == 0 ? 0 : args.call.query_heads / args.call.key_heads),
        panels(panel_count(args.call)) {
    const MaskBlocks* mask = args.call.mask;
    const int64_t rows = args.call.query_rows;
    block_rows = mask == nullptr ? rows : std::min(mask->block_rows, rows);
    // Cut at whole tiles and without regard to threads: the cuts decide the order of sums.
    const int64_t tiles = ceil_div(std::max<int64_t>(block_rows, 1), kernel.tile_rows);
    const int64_t parts = ceil_div(tiles * kernel.tile_rows, args.call.tunables.backward_rows);
    rows_per_block = ceil_div(tiles, parts) * kernel.tile_rows;
    splits = ceil_div(block_rows, rows_per_block);
    row_blocks = (mask == nullptr ? 1 : mask->row_blocks) * splits;
    // Where keys are cut, and which comes first, changes no sum but those of captured tensors.
    const ScoreGradient* score = args.score_gradient;
    const int64_t available = threads;
    if (score != nullptr && score->tensor_count != 0) threads = kAssumedThreads;
    const int64_t most = std::min(kMostPanels, std::max<int64_t>(panels, 1));
    panels_per_block = 1;
    while (panels_per_block < most &&
           kernel.scratch_bytes(args, {rows_per_block, panels_per_block + 1}) <=
               static_cast<size_t>(args.call.tunables.backward_bytes)) {
      ++panels_per_block;
    }
    if (panels_per_block > 2) panels_per_block &= ~int64_t{1};
    while (threads > 1 && panels_per_block > 2 &&
           heads * ceil_div(panels, panels_per_block) < kBlocksPerThread * threads) {
      panels_per_block = (panels_per_block / 2 + 1) & ~int64_t{1};
    }
    key_blocks = std::max<int64_t>(1, ceil_div(panels, panels_per_block));
    in_flight = std::min(heads, threads);
    // Heads that add to the same elements must not come side by side.
    if (adds_to_shared(score)) {
      if (!score->apart_by_head && !score->apart_by_batch) in_flight = 1;
      if (!score->apart_by_batch) in_flight = std::min(in_flight, args.call.key_heads);
    }
    whole_heads = key_blocks == 1;
    if (whole_heads) {
      ring = std::min(heads, available);
    } else {
      ring = std::min(heads, available == 1 ? in_flight : 2 * std::max(in_flight, available));
    }
    tickets = heads * key_blocks;
  }
};

// Where each piece of working memory lies in the caller's one block.
struct Plan {
  size_t sums_bytes;   // one block of rows
  size_t sums_at;      // [ring][group][row_blocks]
  size_t done_at;      // [ring][group][row_blocks] Counter
  size_t finished_at;  // [heads] Counter
  size_t thread_bytes;
  size_t words_offset;
  size_t kernel_offset;
  size_t captured_offset;  // where to add: void* per captured tensor
  size_t thread_at;
  // Ticket t adds to copy t % copies of the sums, after ticket t - copies.
  int64_t copies;
  size_t copy_bytes;
  size_t copies_at;
  size_t before_at;   // [tickets]: the ticket before that may add to the same shared elements
  size_t latest_at;   // [tickets]: room to find those
  size_t through_at;  // [tickets] Counter: whether the ticket is through
  size_t total;

  Plan(const BackwardArgs& args, const BackwardKernel& kernel, const Schedule& schedule,
       int threads) {
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    ScratchLayout layout;
    const size_t blocks = size(schedule.ring * schedule.group * schedule.row_blocks);
    sums_bytes = kernel.grad_query_bytes(args, schedule.rows_per_block);
    sums_at = layout.add(sums_bytes * blocks);
    done_at = layout.add(blocks * sizeof(Counter));
    finished_at = layout.add(size(schedule.heads) * sizeof(Counter));
    words_offset = page_rounded(size(schedule.panels) * sizeof(Panel));
    kernel_offset = words_offset + page_rounded(composed_bytes(args.call, schedule.rows_per_block));
    captured_offset =
        kernel_offset + page_rounded(kernel.scratch_bytes(
                            args, {schedule.rows_per_block, schedule.panels_per_block}));
    const ScoreGradient* score = args.score_gradient;
    const int64_t tensors = score == nullptr ? 0 : score->tensor_count;
    thread_bytes = captured_offset + page_rounded(size(tensors) * sizeof(void*));
    thread_at = layout.add(thread_bytes * size(threads));
    copy_bytes = 0;
    for (int64_t i = 0; i < tensors; ++i) copy_bytes += sums_of(score->tensors[i]);
    copies = copy_bytes == 0 ? 0
                             : std::clamp<int64_t>(static_cast<int64_t>(kCopiesBytes / copy_bytes),
                                                   1, std::min(kMostCopies, schedule.tickets));
    copies_at = layout.add(copy_bytes * size(copies));
    before_at = layout.add(tensors == 0 ? 0 : size(schedule.tickets) * sizeof(int64_t));
    latest_at = layout.add(tensors == 0 ? 0 : size(schedule.tickets) * sizeof(int64_t));
    through_at = layout.add(tensors == 0 ? 0 : size(schedule.tickets) * sizeof(Counter));
    total = layout.bytes();
  }

  static size_t sums_of(const CapturedGradient& tensor) {
    return tensor.shared != 0 ? 0
                              : page_rounded(static_cast<size_t>(tensor.elements) * sizeof(double));
  }
};

class Call {
 public:
  Call(const BackwardArgs& args, const BackwardKernel& kernel, const Schedule& schedule,
       const Plan& plan, std::byte* memory)
      : args_(args),
        kernel_(kernel),
        schedule_(schedule),
        plan_(plan),
        memory_(memory),
        done_(reinterpret_cast<Counter*>(memory + plan.done_at)),
        finished_(reinterpret_cast<Counter*>(memory + plan.finished_at)) {
    const int64_t blocks = schedule.ring * schedule.group * schedule.row_blocks;
    for (int64_t i = 0; i < blocks; ++i) new (&done_[i]) Counter{0};
    for (int64_t h = 0; h < schedule.heads; ++h) new (&finished_[h]) Counter{0};
    const ScoreGradient* score = args.score_gradient;
    if (score != nullptr && score->tensor_count != 0) order_tickets(*score);
  }

  // Draws tickets until none are left. Runs on every thread.
  void work() {
    const int thread = next_thread_.fetch_add(1);
    std::byte* mine = memory_ + plan_.thread_at + static_cast<size_t>(thread) * plan_.thread_bytes;
    for (;;) {
      const int64_t ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed);
      if (ticket >= schedule_.tickets) return;
      // A ticket may wait for tickets before it, never for later ones.
      const Place place = place_of(ticket);
      if (through_ != nullptr) take_turn(ticket, mine);
      // A thread that waits for memory, or for its turn on a processor, must not hold up the others
      // where nothing is shared.
      const int64_t slot = schedule_.whole_heads ? thread : place.head % schedule_.ring;
      key_block(place.head, place.number, slot, mine);
      if (through_ != nullptr) through_[ticket].store(1, std::memory_order_release);
    }
  }

  // Writes the sums of captured tensors, chunk by chunk. Runs on every thread.
  void add_up() {
    const ScoreGradient& score = *args_.score_gradient;
    for (;;) {
      int64_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
      size_t at = plan_.copies_at;
      int64_t i = 0;
      for (; i < score.tensor_count; ++i) {
        const CapturedGradient& tensor = score.tensors[i];
        const int64_t chunks = tensor.shared != 0 ? 0 : ceil_div(tensor.elements, kChunk);
        if (chunk < chunks) break;
        chunk -= chunks;
        at += Plan::sums_of(tensor);
      }
      if (i == score.tensor_count) return;
      write_sums(score.tensors[i], at, chunk * kChunk);
    }
  }

 private:
  struct Place {
    int64_t head;
    int64_t number;  // of the head's key block
  };

  Place place_of(int64_t ticket) const {
    const int64_t per_turn = schedule_.in_flight * schedule_.key_blocks;
    const int64_t first_head = ticket / per_turn * schedule_.in_flight;
    const int64_t heads = std::min(schedule_.in_flight, schedule_.heads - first_head);
    const int64_t within = ticket % per_turn;
    return {first_head + within % heads, within / heads};
  }

  // Finds the ticket that each one follows where both add to a shared tensor's elements.
  void order_tickets(const ScoreGradient& score) {
    before_ = reinterpret_cast<int64_t*>(memory_ + plan_.before_at);
    through_ = reinterpret_cast<Counter*>(memory_ + plan_.through_at);
    int64_t* latest = reinterpret_cast<int64_t*>(memory_ + plan_.latest_at);
    const bool shared = adds_to_shared(&score);
    for (int64_t t = 0; t < schedule_.tickets; ++t) latest[t] = -1;
    for (int64_t t = 0; t < schedule_.tickets; ++t) {
      new (&through_[t]) Counter{0};
      const Place place = place_of(t);
      const int64_t batch = score.apart_by_batch ? place.head / args_.call.key_heads : 0;
      const int64_t head = score.apart_by_head ? place.head % args_.call.key_heads : 0;
      const int64_t number = score.apart_by_key ? place.number : 0;
      int64_t& last = latest[(batch * args_.call.key_heads + head) * schedule_.key_blocks + number];
      before_[t] = shared ? last : -1;
      last = t;
    }
  }

  // Waits until the ticket may add to the captured tensors' sums, and says where these are.
  void take_turn(int64_t ticket, std::byte* mine) {
    if (before_[ticket] >= 0) wait_for(through_[before_[ticket]], 1);
    std::byte* copy = nullptr;
    if (plan_.copies != 0) {
      copy =
          memory_ + plan_.copies_at + static_cast<size_t>(ticket % plan_.copies) * plan_.copy_bytes;
      if (ticket >= plan_.copies) {
        wait_for(through_[ticket - plan_.copies], 1);
      } else {
        std::memset(copy, 0, plan_.copy_bytes);
      }
    }
    const ScoreGradient& score = *args_.score_gradient;
    void** captured = reinterpret_cast<void**>(mine + plan_.captured_offset);
    for (int64_t i = 0; i < score.tensor_count; ++i) {
      const CapturedGradient& tensor = score.tensors[i];
      captured[i] = tensor.shared != 0
                        ? reinterpret_cast<void*>(static_cast<intptr_t>(tensor.address))
                        : static_cast<void*>(copy);
      if (tensor.shared == 0) copy += Plan::sums_of(tensor);
    }
  }

  // `sums` is where the first copy of the tensor's sums lies.
  void write_sums(const CapturedGradient& tensor, size_t sums, int64_t first) {
    float* out = reinterpret_cast<float*>(static_cast<intptr_t>(tensor.address));
    const int64_t end = std::min(tensor.elements, first + kChunk);
    for (int64_t i = first; i < end; ++i) {
      double sum = 0.0;
      for (int64_t copy = 0; copy < plan_.copies; ++copy) {
        const std::byte* at = memory_ + sums + static_cast<size_t>(copy) * plan_.copy_bytes;
        sum += reinterpret_cast<const double*>(at)[i];
      }
      out[i] = static_cast<float>(sum);
    }
  }

  // `slot` of the ring is the head's.
  void key_block(int64_t head, int64_t number, int64_t slot, std::byte* mine) {
    if (!schedule_.whole_heads && head >= schedule_.ring) {
      wait_for(finished_[head - schedule_.ring], schedule_.key_blocks);
    }
    KeyBlock block;
    block.capacity = {schedule_.rows_per_block, schedule_.panels_per_block};
    block.batch = head / args_.call.key_heads;
    block.key_head = head % args_.call.key_heads;
    block.first_panel = number * schedule_.panels_per_block;
    block.panel_count = std::min(schedule_.panels_per_block, schedule_.panels - block.first_panel);
    block.scratch = mine + plan_.kernel_offset;
    kernel_.open(args_, block);
    // Last rows first: under a causal mask key blocks that start together then share only one row
    // block.
    for (int64_t b = schedule_.row_blocks - 1; b >= 0; --b) {
      for (int64_t g = 0; g < schedule_.group; ++g) {
        row_block(block, head, number, (slot * schedule_.group + g) * schedule_.row_blocks + b, b,
                  g, mine);
      }
    }
    kernel_.close(args_, block);
    finished_[head].fetch_add(1, std::memory_order_release);
  }

  void row_block(const KeyBlock& block, int64_t head, int64_t number, int64_t slot, int64_t b,
                 int64_t g, std::byte* mine) {
    const int64_t start = b % schedule_.splits * schedule_.rows_per_block;
    RowBlock rows;
    rows.query_head = block.key_head * schedule_.group + g;
    rows.first_row = b / schedule_.splits * schedule_.block_rows + start;
    rows.row_count = std::min({schedule_.rows_per_block, schedule_.block_rows - start,
                               args_.call.query_rows - rows.first_row});
    if (rows.row_count <= 0) return;
    Panel* panels = reinterpret_cast<Panel*>(mine);
    const int64_t listed = list_panels(args_.call, block.batch, rows.query_head, rows.first_row,
                                       rows.row_count, panels, mine + plan_.words_offset);
    // The panels of this block; the key blocks before and after it that see the rows.
    int64_t before = -1;
    bool after = false;
    int64_t count = 0;
    for (int64_t i = 0; i < listed; ++i) {
      const int64_t owner = panels[i].index / schedule_.panels_per_block;
      if (owner < number) before = std::max(before, owner);
      if (owner > number) after = true;
      if (owner == number) panels[count++] = panels[i];
    }
    // Rows that see nothing belong to the first key block: it writes their zeros.
    if (count == 0 && (listed != 0 || number != 0)) return;
    std::sort(panels, panels + count,
              [](const Panel& x, const Panel& y) { return x.index < y.index; });
    rows.panels = panels;
    rows.panel_count = count;
    rows.first = before < 0;
    rows.last = !after;
    rows.captured = reinterpret_cast<void* const*>(mine + plan_.captured_offset);
    rows.grad_query = reinterpret_cast<float*>(memory_ + plan_.sums_at +
                                               static_cast<size_t>(slot) * plan_.sums_bytes);
    // Counts go on from head to head, so that a slot's last user is no one's predecessor.
    const int64_t base = head * (schedule_.key_blocks + 1) + 1;
    if (!rows.first) wait_for(done_[slot], base + before);
    kernel_.rows(args_, block, rows);
    done_[slot].store(base + number, std::memory_order_release);
  }

  const BackwardArgs& args_;
  const BackwardKernel& kernel_;
  const Schedule& schedule_;
  const Plan& plan_;
  std::byte* memory_;
  Counter* done_;
  Counter* finished_;
  int64_t* before_ = nullptr;
  Counter* through_ = nullptr;
  std::atomic<int> next_thread_{0};
  Counter next_ticket_{0};
  Counter next_chunk_{0};
};

}  // namespace

Status attention_backward(const BackwardArgs& args, const BackwardKernel& kernel, int threads,
                          bool poison) {
  if (args.call.batches == 0 || args.call.key_heads == 0) return Status::kOk;
  threads = std::max(threads, 1);
  const Schedule schedule(args, kernel, threads);
  threads = static_cast<int>(std::min<int64_t>(threads, schedule.tickets));
  const Plan plan(args, kernel, schedule, threads);
  Scratch& scratch = thread_scratch();
  std::byte* memory = scratch.acquire(plan.total);
  if (memory == nullptr) return Status::kOutOfMemory;
  if (poison) std::memset(memory, 0xff, plan.total);
  const ForwardArgs& sizes = args.call;
  Span written[] = {
      extent_of(args.grad_query,
                {sizes.batches, sizes.query_heads, sizes.query_rows, sizes.head_dim}, kernel.dtype),
      extent_of(args.grad_key, {sizes.batches, sizes.key_heads, sizes.keys, sizes.head_dim},
                kernel.dtype),
      extent_of(args.grad_value, {sizes.batches, sizes.key_heads, sizes.keys, sizes.value_dim},
                kernel.dtype)};
  expect_writes(written, 3);
  Call call(args, kernel, schedule, plan, memory);
  run_on_threads(threads, [](void* c) { static_cast<Call*>(c)->work(); }, &call);
  if (plan.copies != 0) {
    const bool few = plan.copy_bytes <= kChunk * sizeof(double);
    run_on_threads(few ? 1 : threads, [](void* c) { static_cast<Call*>(c)->add_up(); }, &call);
  }
  scratch.release();
  const bool failed = args.call.score != nullptr && args.call.score->failure->step >= 0;
  return failed ? Status::kIndexOutOfRange : Status::kOk;
}

}  // namespace torchyard

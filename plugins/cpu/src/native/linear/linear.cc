#include "linear/linear.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/math.h"
#include "base/threads.h"
#include "base/work_runs.h"

namespace torchyard {

namespace {

// Words of x that are packed before they are multiplied: what the last cache holds beside the rest.
constexpr int64_t kPassWords = int64_t{1} << 22;
// Multiplications that are worth waking a thread for.
constexpr int64_t kWorkPerThread = int64_t{1} << 17;
// Items per thread, so that threads end together.
constexpr int64_t kItemsPerThread = 8;
// Outputs that are taken at once where dots are.
constexpr int64_t kDotOutputs = 32;

bool takes_dots(const LinearArgs& args, const LinearKernel& kernel) {
  return !args.weight.packed && args.weight.column == 1 && args.rows <= kernel.dot_rows;
}

bool takes_turned(const LinearArgs& args, const LinearKernel& kernel) {
  return kernel.turned != nullptr && !args.weight.packed && args.weight.column == 1 &&
         args.rows > kernel.dot_rows && args.rows <= kTurnedRows &&
         args.rows % kPanelColumns == 0 && words_of(args.depth, kernel.pair) >= kTurnedWords;
}

size_t memory(const LinearFunction* function) {
  return function == nullptr ? 0 : function->kernel->bytes(*function->program);
}

// How a pass over some batches, or over some rows of one, is cut.
struct Pass {
  int64_t batches, rows;  // of a pass
  int64_t block_rows;     // at most
  int64_t blocks;         // per batch
  int64_t block_words;    // room for a block's packed x
  int64_t panels, group;  // in all; per item
  int64_t parts;          // of a batch's blocks
  int64_t items;
  int threads;
  int64_t prepared_rows, element;
  size_t blocks_at, x_at, prepared_at, thread_at, item_bytes, thread_bytes, total;

  Pass(const LinearArgs& args, const LinearKernel& kernel, int most_threads) {
    const bool dots = takes_dots(args, kernel);
    const bool turned = takes_turned(args, kernel);
    const int64_t words = words_of(args.depth, kernel.pair);
    const int64_t row_words =
        std::max<int64_t>(1, (dots ? dot_words : kernel.row_words)(args.depth, kernel.pair));
    block_rows = dots ? args.rows : turned ? kPanelColumns : kernel.block_rows;
    const int64_t fit = std::max<int64_t>(1, kPassWords / (row_words * block_rows)) * block_rows;
    // Every pass reads the weight again: passes of equal size, and none for a few rows more.
    const int64_t passes = std::max<int64_t>(1, (args.rows + fit / 2) / fit);
    rows = std::min(args.rows, ceil_div(ceil_div(args.rows, passes), block_rows) * block_rows);
    batches = std::clamp<int64_t>(fit / rows, 1, rows == args.rows ? args.batches : 1);
    blocks = ceil_div(rows, block_rows);
    // Matrix tiles and whole vectors reach beyond the last row.
    block_words = row_words * block_rows + kPanelColumns;
    const int64_t work = args.batches * args.rows * args.outputs * std::max<int64_t>(args.depth, 1);
    threads =
        static_cast<int>(std::clamp<int64_t>(work / kWorkPerThread, 1, std::max(most_threads, 1)));
    const int64_t wanted = threads * kItemsPerThread;
    if (dots) {
      panels = ceil_div(args.columns(), kDotOutputs);
      group = 1;
      parts = 1;
    } else {
      panels = ceil_div(args.columns(), kPanelColumns);
      group = std::clamp<int64_t>(batches * panels / wanted, 1, kGroupPanels / args.halves());
      const int64_t groups = batches * ceil_div(panels, group);
      // Every part packs the panels again where they are plain: not for a few blocks.
      parts = std::clamp<int64_t>(wanted / groups, 1, std::max<int64_t>(1, blocks / 4));
    }
    items = batches * parts * ceil_div(panels, group);
    ScratchLayout layout;
    blocks_at = layout.add(static_cast<size_t>(batches * blocks) * sizeof(LinearBlock));
    x_at = layout.add(static_cast<size_t>(batches * blocks * block_words) * sizeof(uint32_t));
    const int64_t part_rows = ceil_div(blocks, parts) * block_rows;
    size_t item_words = 0;
    if (turned) {
      item_words = kernel.turned_words(part_rows);
    } else if (!dots) {
      item_words = kernel.item_words(part_rows, words);
    }
    item_bytes = page_rounded(item_words * sizeof(uint32_t));
    thread_bytes =
        item_bytes + page_rounded(std::max(memory(args.prologue), memory(args.epilogue)));
    thread_at = layout.add(thread_bytes * static_cast<size_t>(threads));
    // Beside x: what a prologue makes of it, in its own elements.
    prepared_rows = args.prologue == nullptr ? 0 : block_rows;
    element = element_bytes(kernel.dtype);
    prepared_at =
        layout.add(static_cast<size_t>(batches * blocks * prepared_rows * args.depth * element));
    total = layout.bytes();
  }
};

// One pass, run by several threads: first x is packed, then products are taken.
class Run {
 public:
  Run(const LinearArgs& args, const LinearKernel& kernel, const Pass& pass, std::byte* memory,
      int64_t first_batch, int64_t first_row)
      : args_(args),
        kernel_(kernel),
        pass_(pass),
        memory_(memory),
        blocks_(reinterpret_cast<LinearBlock*>(memory + pass.blocks_at)),
        dots_(takes_dots(args, kernel)),
        turned_(takes_turned(args, kernel)) {
    const int64_t batches = std::min(pass.batches, args.batches - first_batch);
    const int64_t rows = std::min(pass.rows, args.rows - first_row);
    // Blocks of equal size: a last one of a single row would take as long as a whole one.
    per_batch_ = ceil_div(rows, dots_ ? rows : pass.block_rows);
    count_ = batches * per_batch_;
    items_ = pass.items / pass.batches * batches;
    uint32_t* x = reinterpret_cast<uint32_t*>(memory + pass.x_at);
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t of = i % per_batch_;
      const int64_t from = rows * of / per_batch_;
      const int64_t to = rows * (of + 1) / per_batch_;
      new (&blocks_[i])
          LinearBlock{first_batch + i / per_batch_, first_row + from, static_cast<int>(to - from),
                      x + i * pass.block_words, prepared_of(i)};
    }
    runs_.start(items_, pass.threads);
  }

  void work() {
    WorkRuns::Worker worker(runs_);
    const int thread = worker.thread();
    for (int64_t i = next_block_.fetch_add(1); i < count_; i = next_block_.fetch_add(1)) {
      if (args_.prologue != nullptr) prepare(blocks_[i], programs(thread));
      (dots_ ? kernel_.words : kernel_.pack)(args_, blocks_[i]);
      packed_.fetch_add(1, std::memory_order_release);
    }
    wait_for(packed_, count_);
    for (WorkItems item = worker.draw(); item.count != 0; item = worker.draw()) {
      multiply(item.first, thread);
    }
  }

 private:
  std::byte* thread_memory(int thread) const {
    return memory_ + pass_.thread_at + static_cast<size_t>(thread) * pass_.thread_bytes;
  }

  std::byte* programs(int thread) const { return thread_memory(thread) + pass_.item_bytes; }

  void* prepared_of(int64_t block) const {
    if (args_.prologue == nullptr) return nullptr;
    return memory_ + pass_.prepared_at + block * pass_.prepared_rows * args_.depth * pass_.element;
  }

  // Runs the prologue over the rows of a block, each of which may lie anywhere.
  void prepare(const LinearBlock& block, std::byte* memory) const {
    const LinearFunction& function = *args_.prologue;
    const Program& program = *function.program;
    const LinearRows& x = args_.x;
    char* const first = const_cast<char*>(static_cast<const char*>(x.data));
    ProgramPlace operands[kMaxProgramPlaces];
    for (int r = 0; r < block.rows; ++r) {
      const int64_t row = block.first + r;
      const int64_t at = block.batch * x.batch + row / x.inner * x.outer + row % x.inner * x.row;
      operands[0] = {first + at * pass_.element, 0, 1};
      for (int64_t i = 1; i < program.operand_count; ++i) {
        operands[i] =
            shifted(function.places[i], program.operands[i], block.batch * args_.rows + row, 0);
      }
      const ProgramPlace result = {
          static_cast<char*>(block.prepared) + r * args_.depth * pass_.element, 0, 1};
      function.kernel->run(program, operands, &result, 1, args_.depth, memory);
    }
  }

  void multiply(int64_t item, int thread) {
    const int64_t groups = ceil_div(pass_.panels, pass_.group);
    const int64_t group = item % groups;
    const int64_t part = item / groups % pass_.parts;
    const LinearBlock* blocks = blocks_ + item / groups / pass_.parts * per_batch_;
    if (dots_) {
      const int64_t first = group * kDotOutputs;
      kernel_.dots(args_, *blocks, first, std::min(first + kDotOutputs, args_.columns()),
                   programs(thread));
      return;
    }
    const int64_t first = per_batch_ * part / pass_.parts;
    LinearItem job;
    job.blocks = blocks + first;
    job.block_count = per_batch_ * (part + 1) / pass_.parts - first;
    const int64_t panel = group * pass_.group;
    const int panels = static_cast<int>(std::min(pass_.group, pass_.panels - panel));
    job.panels = panels * args_.halves();
    for (int p = 0; p < job.panels; ++p) {
      job.first[p] = p / panels * args_.columns() + (panel + p % panels) * kPanelColumns;
    }
    job.few_rows = args_.weight.packed && args_.rows <= kFewRows;
    job.scratch = reinterpret_cast<uint32_t*>(thread_memory(thread));
    job.memory = programs(thread);
    if (job.block_count > 0) (turned_ ? kernel_.turned : kernel_.item)(args_, job);
  }

  const LinearArgs& args_;
  const LinearKernel& kernel_;
  const Pass& pass_;
  std::byte* memory_;
  LinearBlock* blocks_;
  const bool dots_, turned_;
  int64_t per_batch_, count_, items_;
  std::atomic<int64_t> next_block_{0};
  std::atomic<int64_t> packed_{0};
  WorkRuns runs_;
};

}  // namespace

Status linear(const LinearArgs& args, const LinearKernel& kernel, int threads, bool poison) {
  if (args.batches == 0 || args.rows == 0 || args.outputs == 0) return Status::kOk;
  if (kernel.few != nullptr && args.rows <= kFewRows) {
    return linear(args, **kernel.few, threads, poison);
  }
  const Pass pass(args, kernel, threads);
  Scratch& scratch = thread_scratch();
  std::byte* memory = scratch.acquire(pass.total);
  if (memory == nullptr) return Status::kOutOfMemory;
  if (poison) std::memset(memory, 0xff, pass.total);
  for (int64_t batch = 0; batch < args.batches; batch += pass.batches) {
    for (int64_t row = 0; row < args.rows; row += pass.rows) {
      Run run(args, kernel, pass, memory, batch, row);
      run_on_threads(pass.threads, [](void* r) { static_cast<Run*>(r)->work(); }, &run);
    }
  }
  scratch.release();
  return Status::kOk;
}

}  // namespace torchyard

// Working memory and threads of one product; the arithmetic is the kernel's.
#include <algorithm>
#include <atomic>

#include "base/threads.h"
#include "base/work_runs.h"
#include "quantised/quantised.h"

namespace torchyard {

namespace {

// Rows of x that are made ready at once: weights are read again for the next.
constexpr int64_t kMostRows = 1024;
// Making so few rows ready takes less than waking a thread.
constexpr int64_t kRowsAlone = 16;
constexpr int64_t kRowsAtOnce = 8;
// Waking a thread costs about as much as reading so many bytes.
constexpr int64_t kBytesPerThread = int64_t{1} << 16;
constexpr int kMostThreads = 1024;
constexpr int64_t kLine = 64;

struct Plan {
  QuantisedSum sum;
  int threads;
  int64_t rows, panels_at_once;
  size_t words_at, scales_at, sums_at, thread_at, thread_bytes, total;
  int64_t row_bytes;

  Plan(const QuantisedArgs& args, const QuantisedKernel& kernel, int wanted)
      : sum(kernel.sum(args)), rows(std::min(args.rows, kMostRows)) {
    const int64_t bytes = args.panels() * args.panel_bytes();
    const int64_t useful = std::max<int64_t>(1, bytes / kBytesPerThread);
    threads = static_cast<int>(std::min<int64_t>({wanted, args.panels(), useful, kMostThreads}));
    panels_at_once = std::clamp<int64_t>(args.panels() / threads, 1, kernel.panels_at_once);
    const int64_t element = sum == QuantisedSum::kBytes ? 1 : sum == QuantisedSum::kPairs ? 2 : 4;
    // Whole vectors beyond the padding may be written.
    const int64_t lines = ((args.padded() + 15) / 16 * 16 * element + kLine - 1) / kLine;
    // An odd number: of rows that are a power of two apart, few lie in a cache at once.
    row_bytes = (lines | 1) * kLine;
    size_t at = 0;
    const auto place = [&at](int64_t size) {
      const size_t start = at;
      at += (static_cast<size_t>(size) + 63) / 64 * 64;
      return start;
    };
    words_at = place(rows * row_bytes);
    scales_at = place(rows * 4);
    sums_at = place(rows * args.segments() * 4);
    thread_bytes = (kernel.scratch_bytes(args, rows) + 63) / 64 * 64;
    thread_at = place(static_cast<int64_t>(thread_bytes) * threads);
    total = at;
  }
};

class Call {
 public:
  Call(const QuantisedArgs& args, const QuantisedKernel& kernel, const Plan& plan,
       std::byte* memory)
      : args_(args), kernel_(kernel), plan_(plan), memory_(memory) {
    rows_ = {memory + plan.words_at,
             reinterpret_cast<float*>(memory + plan.scales_at),
             reinterpret_cast<int32_t*>(memory + plan.sums_at),
             plan.row_bytes,
             0,
             0};
  }

  void run() {
    for (int64_t first = 0; first < args_.rows; first += plan_.rows) {
      rows_.first = first;
      rows_.end = std::min(first + plan_.rows, args_.rows);
      next_row_.store(first);
      runs_.start(args_.panels(), plan_.threads);
      if (rows_.end - first <= kRowsAlone) {
        kernel_.prepare(args_, rows_, first, rows_.end);
      } else {
        run_on_threads(
            plan_.threads, [](void* self) { static_cast<Call*>(self)->prepare(); }, this);
      }
      run_on_threads(plan_.threads, [](void* self) { static_cast<Call*>(self)->multiply(); }, this);
    }
  }

 private:
  void prepare() {
    for (;;) {
      const int64_t row = next_row_.fetch_add(kRowsAtOnce, std::memory_order_relaxed);
      if (row >= rows_.end) return;
      kernel_.prepare(args_, rows_, row, std::min(row + kRowsAtOnce, rows_.end));
    }
  }

  void multiply() {
    WorkRuns::Worker worker(runs_);
    std::byte* scratch =
        memory_ + plan_.thread_at + static_cast<size_t>(worker.thread()) * plan_.thread_bytes;
    for (;;) {
      const WorkItems panels = worker.draw(plan_.panels_at_once);
      if (panels.count == 0) return;
      kernel_.panels(args_, rows_, panels.first, panels.count, scratch);
    }
  }

  const QuantisedArgs& args_;
  const QuantisedKernel& kernel_;
  const Plan& plan_;
  std::byte* memory_;
  WorkRuns runs_;
  QuantisedRows rows_;
  std::atomic<int64_t> next_row_{0};
};

}  // namespace

bool quantised_linear(const QuantisedArgs& args, const QuantisedKernel& kernel, int threads) {
  if (args.rows == 0 || args.columns == 0) return true;
  const Plan plan(args, kernel, threads);
  Scratch& scratch = thread_scratch();
  std::byte* memory = scratch.acquire(plan.total);
  if (memory == nullptr) return false;
  Call(args, kernel, plan, memory).run();
  scratch.release();
  return true;
}

}  // namespace torchyard

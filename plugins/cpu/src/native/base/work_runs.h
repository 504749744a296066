// Divides the items of a call among its threads.
//
// Each thread has a run of consecutive items, so that what its processor fetches beyond an item is
// its own; a thread that has finished its run takes items of the others' runs. The runs are drawn
// from counters: every item is taken once, however many threads there are in the end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace torchyard {

struct WorkItems {
  int64_t first;
  int64_t count;  // 0: none are left
};

class WorkRuns {
 public:
  // Makes the items [0, items) available to up to `threads` threads. No thread may be drawing.
  void start(int64_t items, int threads) {
    items_ = items;
    runs_ = std::clamp(threads, 1, kMostRuns);
    joined_.store(0, std::memory_order_relaxed);
    for (int r = 0; r < runs_; ++r) next_[r].item.store(first_of(r), std::memory_order_relaxed);
  }

  // What one thread keeps while it draws.
  class Worker {
   public:
    explicit Worker(WorkRuns& runs)
        : runs_(runs), thread_(runs.joined_.fetch_add(1, std::memory_order_relaxed)) {}

    // 0, 1, 2, ...: of the threads that joined, in their order.
    int thread() const { return thread_; }

    // Returns up to `most` items of one run.
    WorkItems draw(int64_t most = 1) {
      for (; tried_ < runs_.runs_; ++tried_) {
        const int run = (thread_ + tried_) % runs_.runs_;
        const int64_t end = runs_.first_of(run + 1);
        const int64_t first = runs_.next_[run].item.fetch_add(most, std::memory_order_relaxed);
        if (first < end) return {first, std::min(most, end - first)};
      }
      return {0, 0};
    }

   private:
    WorkRuns& runs_;
    const int thread_;
    int tried_ = 0;  // runs in which nothing is left
  };

 private:
  // More threads share runs.
  static constexpr int kMostRuns = 64;

  // In a cache line of its own: each thread mostly writes to one.
  struct alignas(64) Next {
    std::atomic<int64_t> item;
  };

  int64_t first_of(int run) const { return items_ * run / runs_; }

  int64_t items_ = 0;
  int runs_ = 1;
  std::atomic<int> joined_{0};
  Next next_[kMostRuns];
};

}  // namespace torchyard

// Whether other processes are still there.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/layout.h"

namespace torchyard::shm {

// Returns when a process started, in clock ticks since boot, or 0 where there is no such process or
// it has ended and waits for its parent. With the process id it names a process for good.
uint64_t start_time(int64_t pid);

// Watches the processes of a group.
class Peers {
 public:
  Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers();

  // Starts to watch `ranks` processes, each named by id and start time.
  void watch(int ranks, const int64_t* pids, const uint64_t* starts);

  // Returns a bit for each rank whose process has ended; from any thread.
  uint64_t ended();

 private:
  int ranks_ = 0;
  int64_t pids_[kMaxRanks] = {};
  uint64_t starts_[kMaxRanks] = {};
  int handles_[kMaxRanks] = {};  // pidfds; -1 where the kernel has none
  std::atomic<uint64_t> ended_{0};
};

}  // namespace torchyard::shm

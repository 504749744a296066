// The threads of one threadgroup: fibers that run until each waits or has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../../shim/interface.h"
#include "../findings.h"
#include "../job.h"
#include "../memory/shadow.h"
#include "fiber.h"

namespace torchyard_metal {

enum class State { kReady, kGroupBarrier, kSimdBarrier, kExchange, kDone };

struct Thread {
  Context context;
  State state = State::kDone;
  int line = 0;
  int operation = 0;
  int flags = 0;
  unsigned char value[kLargestValue] = {};
  Exchange exchange = {};
  uint32_t position[3] = {};
};

class Group {
 public:
  Group(const Job& job, Findings& findings, void (*call)());

  // Runs all threads of a threadgroup to their end.
  void run(uint64_t number);
  bool is_running() const { return running_ != nullptr; }
  // Of the thread that runs.
  Accessor accessor() const;
  uint32_t thread() const { return static_cast<uint32_t>(running_ - threads_.data()); }
  uint32_t coordinate(Place place, int dimension) const;
  const Stacks& stacks() const { return stacks_; }

  // What the thread that runs does; each returns when it may go on.
  void wait_for_group(int flags, int line);
  void wait_for_simdgroup(int flags, int line);
  const Exchange* wait_for_lanes(const void* value, unsigned size, int operation, int line);
  void end();
  void call() { call_(); }

 private:
  void yield(State state, int line);
  void shuffle(std::vector<uint32_t>& order);
  bool release_lanes(uint32_t simdgroup);
  void release_group();
  void report_divergence(const char* kind, const Thread& waiting, const Thread& other,
                         const char* what);
  uint32_t width() const { return job_.width; }

  const Job& job_;
  Findings& findings_;
  void (*call_)();
  Stacks stacks_;
  std::vector<Thread> threads_;
  Thread* running_ = nullptr;
  Context scheduler_;
  uint64_t number_ = 0;
  uint32_t group_position_[3] = {};
  uint32_t epochs_[2] = {};
  // [simdgroup][device, threadgroup]
  std::vector<uint32_t> simd_epochs_;
  // The values of the last exchange of each simdgroup.
  std::vector<unsigned char> values_;
  uint64_t random_;
};

// The group of this process.
extern Group* group;

}  // namespace torchyard_metal

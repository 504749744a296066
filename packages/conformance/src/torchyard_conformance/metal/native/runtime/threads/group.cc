#include "group.h"

#include <algorithm>
#include <cstring>

namespace torchyard_metal {
namespace {

// As in mem_flags.
constexpr int kDevice = 1, kThreadgroup = 2;

void enter() {
  Group& here = *group;
  here.call();
  here.end();
}

}  // namespace

Group* group = nullptr;

Group::Group(const Job& job, Findings& findings, void (*call)())
    : job_(job),
      findings_(findings),
      call_(call),
      stacks_(job.group_size()),
      threads_(job.group_size()),
      random_(job.seed * 0x9e3779b97f4a7c15ull + 1) {
  const uint32_t simdgroups = (job.group_size() + width() - 1) / width();
  simd_epochs_.resize(2 * simdgroups);
  values_.resize(size_t{simdgroups} * width() * kLargestValue);
  for (uint32_t i = 0; i < job.group_size(); i++) {
    uint32_t* position = threads_[i].position;
    position[0] = i % job.threads[0];
    position[1] = i / job.threads[0] % job.threads[1];
    position[2] = i / job.threads[0] / job.threads[1];
  }
}

void Group::run(uint64_t number) {
  number_ = number;
  group_position_[0] = static_cast<uint32_t>(number % job_.grid[0]);
  group_position_[1] = static_cast<uint32_t>(number / job_.grid[0] % job_.grid[1]);
  group_position_[2] = static_cast<uint32_t>(number / job_.grid[0] / job_.grid[1]);
  epochs_[0] = epochs_[1] = 0;
  std::fill(simd_epochs_.begin(), simd_epochs_.end(), 0);
  std::vector<uint32_t> order(threads_.size());
  for (uint32_t i = 0; i < threads_.size(); i++) {
    order[i] = i;
    threads_[i].state = State::kReady;
    stacks_.prepare(threads_[i].context, i, [] {
      arrived(group->running_->context);
      enter();
    });
  }
  shuffle(order);
  for (;;) {
    for (const uint32_t i : order) {
      if (threads_[i].state != State::kReady) continue;
      running_ = &threads_[i];
      switch_context(scheduler_, running_->context);
      running_ = nullptr;
    }
    bool released = false;
    for (uint32_t i = 0; i * width() < threads_.size(); i++) released |= release_lanes(i);
    if (released) continue;
    if (std::all_of(threads_.begin(), threads_.end(),
                    [](const Thread& thread) { return thread.state == State::kDone; }))
      return;
    release_group();
    shuffle(order);
  }
}

// Seed 0 is the order of the threads, seed 1 the reverse of it.
void Group::shuffle(std::vector<uint32_t>& order) {
  std::sort(order.begin(), order.end());
  if (job_.seed == 0) return;
  if (job_.seed == 1) {
    std::reverse(order.begin(), order.end());
    return;
  }
  for (size_t i = order.size(); i > 1; i--) {
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    std::swap(order[i - 1], order[random_ % i]);
  }
}

// Lets the lanes go on that wait in one operation of a simdgroup of which no lane is ready. Of
// lanes at several operations those of the first line, which is where a loop's other lanes still
// are.
bool Group::release_lanes(uint32_t simdgroup) {
  const size_t first = size_t{simdgroup} * width();
  const size_t last = std::min(first + width(), threads_.size());
  const Thread* earliest = nullptr;
  for (size_t i = first; i < last; i++) {
    const Thread& thread = threads_[i];
    if (thread.state != State::kSimdBarrier && thread.state != State::kExchange) continue;
    if (!earliest || thread.line < earliest->line ||
        (thread.line == earliest->line && thread.operation < earliest->operation))
      earliest = &thread;
  }
  if (!earliest) return false;
  const State state = earliest->state;
  const int line = earliest->line, operation = earliest->operation, flags = earliest->flags;
  Bits64 active = 0;
  const Thread* other = nullptr;
  for (size_t i = first; i < last; i++) {
    const Thread& thread = threads_[i];
    if (thread.state == state && thread.line == line && thread.operation == operation)
      active |= Bits64{1} << (i - first);
    else
      other = &thread;
  }
  if (state == State::kSimdBarrier) {
    if (other) report_divergence("divergent-barrier", *earliest, *other, "simdgroup_barrier");
    for (int space = 0; space < 2; space++)
      if (flags & (space ? kThreadgroup : kDevice)) simd_epochs_[2 * simdgroup + space]++;
  }
  unsigned char* values = values_.data() + first * kLargestValue;
  for (size_t i = first; i < last; i++) {
    if (!(active >> (i - first) & 1)) continue;
    Thread& thread = threads_[i];
    std::memcpy(values + (i - first) * kLargestValue, thread.value, kLargestValue);
    thread.exchange = {values, active, static_cast<unsigned>(i - first), width()};
    thread.state = State::kReady;
  }
  return true;
}

// All threads that have not ended wait at a barrier of the threadgroup.
void Group::release_group() {
  const Thread* first = nullptr;
  const Thread* other = nullptr;
  for (const Thread& thread : threads_)
    if (thread.state == State::kGroupBarrier && (!first || thread.line < first->line))
      first = &thread;
  for (const Thread& thread : threads_)
    if (thread.state != State::kGroupBarrier || thread.line != first->line)
      if (!other) other = &thread;
  if (other) report_divergence("divergent-barrier", *first, *other, "threadgroup_barrier");
  for (Thread& thread : threads_)
    if (thread.state == State::kGroupBarrier) thread.state = State::kReady;
  for (int space = 0; space < 2; space++)
    if (first->flags & (space ? kThreadgroup : kDevice)) epochs_[space]++;
}

void Group::report_divergence(const char* kind, const Thread& waiting, const Thread& other,
                              const char* what) {
  Finding made;
  made.kind = kind;
  made.line = waiting.line;
  made.who = {static_cast<uint32_t>(number_), static_cast<uint32_t>(&waiting - threads_.data())};
  made.other = {static_cast<uint32_t>(number_), static_cast<uint32_t>(&other - threads_.data())};
  made.other_line = other.state == State::kDone ? 0 : other.line;
  made.text = what;
  findings_.add(made);
}

Accessor Group::accessor() const {
  Accessor by;
  by.group = static_cast<uint32_t>(number_);
  by.thread = thread();
  by.width = width();
  for (int space = 0; space < 2; space++) {
    by.epochs[space] = epochs_[space];
    by.simd_epochs[space] = simd_epochs_[2 * (by.thread / width()) + static_cast<uint32_t>(space)];
  }
  return by;
}

uint32_t Group::coordinate(Place place, int dimension) const {
  const uint32_t in_group = thread(), size = job_.group_size();
  switch (place) {
    case Place::kThreadInGrid:
      return group_position_[dimension] * job_.threads[dimension] + running_->position[dimension];
    case Place::kGroupInGrid:
      return group_position_[dimension];
    case Place::kThreadInGroup:
      return running_->position[dimension];
    case Place::kIndexInGroup:
      return in_group;
    case Place::kThreadsPerGroup:
      return job_.threads[dimension];
    case Place::kGroupsPerGrid:
      return job_.grid[dimension];
    case Place::kThreadsPerGrid:
      return job_.grid[dimension] * job_.threads[dimension];
    case Place::kIndexInSimdgroup:
      return in_group % width();
    case Place::kSimdgroupInGroup:
      return in_group / width();
    case Place::kThreadsPerSimdgroup:
      return width();
    case Place::kSimdgroupsPerGroup:
      return (size + width() - 1) / width();
    case Place::kIndexInQuadgroup:
      return in_group % 4;
    case Place::kQuadgroupInGroup:
      return in_group / 4;
    case Place::kQuadgroupsPerGroup:
      return (size + 3) / 4;
  }
  return 0;
}

void Group::yield(State state, int line) {
  Thread& thread = *running_;
  thread.state = state;
  thread.line = line;
  switch_context(thread.context, scheduler_);
}

void Group::wait_for_group(int flags, int line) {
  running_->flags = flags;
  yield(State::kGroupBarrier, line);
}

void Group::wait_for_simdgroup(int flags, int line) {
  running_->flags = flags;
  running_->operation = 0;
  yield(State::kSimdBarrier, line);
}

const Exchange* Group::wait_for_lanes(const void* value, unsigned size, int operation, int line) {
  Thread& thread = *running_;
  std::memcpy(thread.value, value, size);
  thread.operation = operation;
  yield(State::kExchange, line);
  return &thread.exchange;
}

void Group::end() {
  yield(State::kDone, 0);
  __builtin_unreachable();
}

}  // namespace torchyard_metal

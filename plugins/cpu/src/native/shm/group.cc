#include "shm/group.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shm/futex.h"

namespace torchyard::shm {

namespace {

constexpr int64_t kMillisecond = 1'000'000;
// Between looks at whether the others are alive, the time is up or a signal came.
constexpr int64_t kSlice = 50 * kMillisecond;
// A peer that computes on another core answers within this; one that waits for this core does not.
constexpr int64_t kSpin = 15'000;
constexpr int kYields = 4;
constexpr int kSpinsPerLook = 32;

std::atomic<uint32_t> forks{0};

void count_fork() { forks.fetch_add(1, std::memory_order_relaxed); }

bool has_core_of_its_own(int ranks) {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) != 0 || CPU_COUNT(&cores) >= ranks;
}

}  // namespace

int make_segment(int ranks) {
  const int file = memfd_create("torchyard", MFD_CLOEXEC);
  if (file < 0) return -1;
  const Layout layout(static_cast<size_t>(ranks));
  SegmentHeader* header = nullptr;
  if (ftruncate(file, static_cast<off_t>(layout.bytes)) == 0) {
    void* mapped = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) header = static_cast<SegmentHeader*>(mapped);
  }
  if (header == nullptr) {
    const int reason = errno;
    close(file);
    errno = reason;
    return -1;
  }
  // All else starts as the zeros that a new file holds.
  header->magic = kMagic;
  header->ranks = static_cast<uint64_t>(ranks);
  munmap(header, kPage);
  return file;
}

Group::~Group() {
  if (base_ != nullptr && !forked()) munmap(base_, layout_.bytes);
}

bool Group::forked() const { return generation_ != forks.load(std::memory_order_relaxed); }

Outcome Group::ready() {
  if (forked()) return {Code::kForked};
  const bool open = !closed_.load(std::memory_order_relaxed) &&
                    header().failure.load(std::memory_order_relaxed) == 0;
  return open ? Outcome{} : obstacle(0);
}

bool Group::map(int file, int rank, int ranks, const int64_t* pids, const uint64_t* starts) {
  static const int registered = pthread_atfork(nullptr, nullptr, count_fork);
  struct stat status;
  if (registered != 0 || fstat(file, &status) != 0) return false;
  layout_ = Layout(static_cast<size_t>(ranks));
  if (static_cast<size_t>(status.st_size) != layout_.bytes) {
    errno = EINVAL;
    return false;
  }
  void* mapped = mmap(nullptr, layout_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return false;
  base_ = static_cast<std::byte*>(mapped);
  // A child that a rank forks must not keep the segment alive, nor write into it.
  madvise(base_, layout_.bytes, MADV_DONTFORK);
  generation_ = forks.load(std::memory_order_relaxed);
  rank_ = rank;
  ranks_ = ranks;
  if (header().magic != kMagic || header().ranks != static_cast<uint64_t>(ranks)) {
    errno = EINVAL;
    return false;
  }
  spins_ = has_core_of_its_own(ranks) ? 1 : 0;
  peers_.watch(ranks, pids, starts);
  header().attached.fetch_add(1);
  futex_wake(&header().attached);
  return true;
}

Outcome Group::meet(const Patience& patience) {
  const int64_t deadline = now() + patience.milliseconds * kMillisecond;
  std::atomic<uint32_t>& attached = header().attached;
  for (;;) {
    const uint32_t seen = attached.load();
    if (seen >= static_cast<uint32_t>(ranks_)) return {};
    const Outcome found = obstacle(~uint64_t{0});
    if (!found.ok()) return fail(found);
    if (patience.interrupted != nullptr && patience.interrupted()) return {Code::kInterrupted};
    if (now() >= deadline) return fail({Code::kTimeout});
    futex_wait(&attached, seen, kSlice);
  }
}

void Group::post(uint64_t number, uint64_t step) {
  std::atomic<uint64_t>& position = announcement(rank_, number).position;
  // Sequentially consistent, as the sleeper's increment is: one of the two sees the other.
  position.store(number << kStepBits | step, std::memory_order_seq_cst);
  if (page(rank_).waiters.count.load(std::memory_order_seq_cst) != 0) futex_wake(&position);
}

Outcome Group::await_slowly(int rank, uint64_t number, uint64_t target, const Patience& patience) {
  std::atomic<uint64_t>& position = announcement(rank, number).position;
  const auto arrived = [&] { return position.load(std::memory_order_acquire) >= target; };
  const int64_t start = now();
  if (spins_ != 0) {
    do {
      for (int i = 0; i < kSpinsPerLook; ++i) {
        if (arrived()) return {};
        relax();
      }
    } while (now() - start < kSpin);
  } else {
    for (int i = 0; i < kYields; ++i) {
      if (arrived()) return {};
      sched_yield();
    }
  }
  const int64_t deadline = start + patience.milliseconds * kMillisecond;
  std::atomic<uint32_t>& waiters = page(rank).waiters.count;
  for (;;) {
    waiters.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t seen = position.load(std::memory_order_seq_cst);
    // x86 and Arm are little-endian here: the lower half comes first.
    if (seen < target) futex_wait(&position, static_cast<uint32_t>(seen), kSlice);
    waiters.fetch_sub(1, std::memory_order_seq_cst);
    if (arrived()) return {};
    // Nobody needs a rank that has done its part, and it may end then.
    const Outcome found = obstacle(before(number, number << kStepBits | kLastStep));
    if (!found.ok()) return arrived() ? Outcome{} : fail(found);
    if (patience.interrupted != nullptr && patience.interrupted()) {
      return fail({Code::kInterrupted, uint64_t{1} << rank_});
    }
    if (now() >= deadline) return fail({Code::kTimeout, late(number, target)});
  }
}

uint64_t Group::before(uint64_t number, uint64_t position) const {
  uint64_t found = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    const uint64_t theirs = announcement(peer, number).position.load(std::memory_order_acquire);
    if (peer != rank_ && theirs < position) found |= uint64_t{1} << peer;
  }
  return found;
}

uint64_t Group::late(uint64_t number, uint64_t target) const {
  // Who is in the collective may itself wait for who is not.
  const uint64_t outside = before(number, number << kStepBits);
  return outside != 0 ? outside : before(number, target);
}

void Group::ring_bell(int rank) {
  Bell& bell = page(rank).bell;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  if (bell.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake(&bell.rings);
}

void Group::listen(uint32_t heard) {
  Bell& bell = page(rank_).bell;
  const int64_t start = now();
  while (spins_ != 0 && now() - start < kSpin) {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (bell.rings.load(std::memory_order_acquire) != heard) return;
      relax();
    }
  }
  bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (bell.rings.load(std::memory_order_seq_cst) == heard) {
    futex_wait(&bell.rings, heard, kSlice);
  }
  bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

Outcome Group::obstacle(uint64_t needed) {
  if (closed_.load(std::memory_order_acquire)) return {Code::kClosed};
  const uint64_t failure = header().failure.load(std::memory_order_acquire);
  if (failure != 0) {
    const uint64_t fault = failure >> 16 & 0xffff;
    Outcome found{Code::kElsewhere};
    found.ranks = fault == 0 ? 0 : uint64_t{1} << (fault - 1);
    found.witness = static_cast<int>(failure & 0xffff) - 1;
    found.reason = static_cast<Code>(failure >> 32);
    return found;
  }
  needed &= ~(uint64_t{1} << rank_);
  const uint64_t gone = left();
  const uint64_t died = peers_.ended() & needed & ~gone;
  if (died != 0) return {Code::kDied, died};
  if ((gone & needed) != 0) return {Code::kLeft, gone & needed};
  return {};
}

void Group::leave(const char* note, size_t bytes) {
  // Only the first word counts: others may be reading it.
  if (page(rank_).left.load(std::memory_order_relaxed) != 0) return;
  std::memcpy(page(rank_).note, note, std::min(bytes, kNoteBytes - 1));
  page(rank_).left.store(1, std::memory_order_release);
  wake_all();
}

const char* Group::note(int rank) const {
  return page(rank).left.load(std::memory_order_acquire) != 0 ? page(rank).note : nullptr;
}

uint64_t Group::left() const {
  uint64_t found = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (page(peer).left.load(std::memory_order_acquire) != 0) found |= uint64_t{1} << peer;
  }
  return found;
}

void Group::wake_all() {
  for (int rank = 0; rank < ranks_; ++rank) {
    futex_wake(&page(rank).announcements[0].position);
    futex_wake(&page(rank).announcements[1].position);
    futex_wake(&page(rank).bell.rings);
  }
}

Outcome Group::fail(const Outcome& outcome) {
  if (outcome.code == Code::kClosed || outcome.code == Code::kElsewhere) return outcome;
  uint64_t fault = 0;
  if (outcome.ranks != 0) fault = static_cast<uint64_t>(__builtin_ctzll(outcome.ranks)) + 1;
  uint64_t expected = 0;
  header().failure.compare_exchange_strong(expected, static_cast<uint64_t>(outcome.code) << 32 |
                                                         fault << 16 |
                                                         static_cast<uint64_t>(rank_ + 1));
  wake_all();
  return outcome;
}

}  // namespace torchyard::shm

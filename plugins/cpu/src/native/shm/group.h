// A group of processes that share a segment: who is in it, where each is, and waiting for them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/layout.h"
#include "shm/peers.h"

namespace torchyard::shm {

enum class Code : uint32_t {
  kOk = 0,
  kDied = 1,         // a rank's process ended
  kTimeout = 2,      // ranks did not come in time
  kMismatch = 3,     // a rank is in another collective, or in one of another size
  kInterrupted = 4,  // the interpreter wants to handle a signal
  kClosed = 5,       // the group was closed
  kElsewhere = 6,    // another rank gave up, and said whose fault it was
  kForked = 7,       // a process that a rank forked is no rank
  kLeft = 8,         // a rank left the group
};

// Why an operation did not happen. `ranks` has a bit for each rank at fault.
struct Outcome {
  Code code = Code::kOk;
  uint64_t ranks = 0;
  int witness = -1;         // kElsewhere: who gave up
  Code reason = Code::kOk;  // kElsewhere: why
  uint64_t theirs[2] = {};  // kMismatch: what the first of `ranks` announced: what, bytes
  uint64_t ours[2] = {};    // likewise

  bool ok() const { return code == Code::kOk; }
};

// How long to wait, and whether to look for signals meanwhile.
struct Patience {
  int64_t milliseconds = 0;
  bool (*interrupted)() = nullptr;
};

class Group {
 public:
  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  // Maps the segment behind `file` and waits until all ranks have. Returns false, with errno set,
  // where it cannot be mapped or holds something else.
  bool map(int file, int rank, int ranks, const int64_t* pids, const uint64_t* starts);
  Outcome meet(const Patience& patience);

  // Announces that this rank has left, and why; a note that is too long is cut.
  void leave(const char* note, size_t bytes);
  // What a rank that left had to say; it ends with a zero. Null where it has not left.
  const char* note(int rank) const;

  // A bit for each rank that has; for each rank but this one.
  uint64_t left() const;
  uint64_t others() const {
    return (ranks_ == kMaxRanks ? ~uint64_t{0} : (uint64_t{1} << ranks_) - 1) &
           ~(uint64_t{1} << rank_);
  }

  // Ends every wait of this process, now and later; safe from any thread.
  void close() { closed_.store(true, std::memory_order_release); }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool forked() const;

  // Says why nothing can be started any more; ok() where something can.
  Outcome ready();

  // Starts the next collective: returns its number.
  uint64_t begin() { return ++number_; }
  uint64_t number() const { return number_; }
  RankPage& page(int rank) const {
    return reinterpret_cast<RankPage*>(base_ + layout_.pages)[rank];
  }
  Announcement& announcement(int rank, uint64_t number) const {
    return page(rank).announcements[number & 1];
  }
  std::byte* staging(int rank, uint64_t number) const {
    return base_ + layout_.staging + static_cast<size_t>(rank) * kStagingBytes +
           (number & 1) * kHalfBytes;
  }
  ChannelHeader& channel(int from, int to) const {
    return reinterpret_cast<ChannelHeader*>(base_ + layout_.channels)[from * ranks_ + to];
  }
  std::byte* ring(int from, int to) const {
    return base_ + layout_.rings + static_cast<size_t>(from * ranks_ + to) * kRingBytes;
  }

  // Says that this rank has come to a step of a collective.
  void post(uint64_t number, uint64_t step);

  // Waits until a rank has come to a step.
  Outcome await(int rank, uint64_t number, uint64_t step, const Patience& patience) {
    const uint64_t target = number << kStepBits | step;
    std::atomic<uint64_t>& position = announcement(rank, number).position;
    if (position.load(std::memory_order_acquire) >= target) return {};
    return await_slowly(rank, number, target, patience);
  }

  // Waits until `bell().rings` is no longer `heard`, a peer ends or a moment passes.
  Bell& bell(int rank) const { return page(rank).bell; }
  void ring_bell(int rank);
  void listen(uint32_t heard);

  // Says what keeps this group from going on, where the ranks of `needed` have to; ok() if nothing.
  Outcome obstacle(uint64_t needed);
  // Records a failure for the others, wakes them, and returns what everyone should report.
  Outcome fail(const Outcome& outcome);

 private:
  Outcome await_slowly(int rank, uint64_t number, uint64_t target, const Patience& patience);
  // The other ranks that have not come to a position of collective `number`.
  uint64_t before(uint64_t number, uint64_t position) const;
  // Those of them that a wait for `target` is due to.
  uint64_t late(uint64_t number, uint64_t target) const;
  void wake_all();
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }

  std::byte* base_ = nullptr;
  Layout layout_{0};
  int rank_ = 0;
  int ranks_ = 0;
  int spins_ = 0;
  uint32_t generation_ = 0;
  uint64_t number_ = 0;
  Peers peers_;
  std::atomic<bool> closed_{false};
};

// Makes a segment for `ranks` processes; it has no name, and ends with its last mapping. Returns a
// file, or -1 with errno set.
int make_segment(int ranks);

}  // namespace torchyard::shm

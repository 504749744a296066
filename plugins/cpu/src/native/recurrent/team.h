// Threads that run the same phases in the same order, with a barrier after each one.
//
// A phase of a recurrent step lasts microseconds: less than waking a thread, so that threads spin
// for one another. None is waited for that has not come: its share is taken by who has.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/threads.h"

namespace torchyard {

class Team {
 public:
  static constexpr int kMost = 64;

  explicit Team(int shares) : shares_(shares) {}

  int shares() const { return shares_; }

  // One thread's way through the phases.
  class Member {
   public:
    explicit Member(Team& team)
        : team_(team), place_(team.joined_.fetch_add(1, std::memory_order_acq_rel)) {}

    // A number below shares() that no other member has; -1: all are taken, and there is nothing
    // to do here.
    int place() const { return place_ < team_.shares_ ? place_ : -1; }

    // Calls task(i) for each i < count, whoever is free.
    template <class Task>
    void drawn(int64_t count, const Task& task) {
      const int64_t end = drawn_ + count;
      int64_t next = team_.drawn_.load(std::memory_order_relaxed);
      while (next < end) {
        if (!team_.drawn_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel)) {
          continue;
        }
        task(next - drawn_);
        team_.done_.fetch_add(1, std::memory_order_acq_rel);
        next = team_.drawn_.load(std::memory_order_relaxed);
      }
      drawn_ = end;
      target_ += count;
      for (int turn = 0; behind(); ++turn) wait_a_little(turn);
    }

    // Calls task(i) for each share i, by its own member where that one has come: the same thread
    // then finds the same weights in its own cache at each step.
    template <class Task>
    void shared(const Task& task) {
      ++phase_;
      take(place_, task);
      for (int turn = 0;; ++turn) {
        int share = 0;
        while (share < team_.shares_ && is_done(share)) ++share;
        if (share == team_.shares_) return;
        const int present = team_.joined_.load(std::memory_order_relaxed);
        for (; share < team_.shares_; ++share) {
          if (share >= present || turn >= kPatience) take(share, task);
        }
        wait_a_little(turn);
      }
    }

   private:
    // Turns after which a share of a member that is elsewhere is taken.
    static constexpr int kPatience = 1024;

    bool is_done(int share) const {
      return team_.shares_of_[share].done.load(std::memory_order_acquire) >= phase_;
    }

    bool behind() const { return team_.done_.load(std::memory_order_acquire) < target_; }

    template <class Task>
    void take(int share, const Task& task) {
      std::atomic<int64_t>& taken = team_.shares_of_[share].taken;
      int64_t last = taken.load(std::memory_order_relaxed);
      if (last >= phase_) return;
      // Nobody is two phases ahead, so `last` is the phase before.
      if (!taken.compare_exchange_strong(last, phase_, std::memory_order_acq_rel)) return;
      task(share);
      team_.shares_of_[share].done.store(phase_, std::memory_order_release);
    }

    Team& team_;
    const int place_;
    int64_t phase_ = 0;
    int64_t drawn_ = 0;
    int64_t target_ = 0;
  };

 private:
  const int shares_;
  std::atomic<int> joined_{0};
  alignas(64) std::atomic<int64_t> drawn_{0};
  alignas(64) std::atomic<int64_t> done_{0};

  // The last phase in which a share was taken, and was done. Others look at what is done, so that
  // it has a line of its own, and who has a share finds the rest in its own cache.
  struct Share {
    alignas(64) std::atomic<int64_t> taken{0};
    alignas(64) std::atomic<int64_t> done{0};
  };
  Share shares_of_[kMost];
};

}  // namespace torchyard

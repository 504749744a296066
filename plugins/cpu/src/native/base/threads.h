// Threads that run one function, and the working memory that each keeps between calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace torchyard {

// Calls `body(data)` on up to `threads` threads, the caller among them, and returns when all calls
// have returned. The number of calls is at least one and at most `threads`; the work must therefore
// be drawn from a shared counter, never divided by a thread number. `body` must not throw.
//
// Uses the OpenMP pool that is already in the process where there is one (torch's: a second pool
// would fight with it for the cores), else threads of its own.
void run_on_threads(int threads, void (*body)(void*), void* data);

// Hints to the processor, and after a while to the scheduler, that the caller waits for another
// thread.
// `turn` counts the caller's waits so far.
void wait_a_little(int turn);

// Returns when other threads have brought `count` to `target`.
void wait_for(const std::atomic<int64_t>& count, int64_t target);

constexpr size_t kScratchAlignment = 4096;

// Rounds `bytes` up to whole pages, so that neighbours in one block never share a cache line.
constexpr size_t page_rounded(size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// Owns one page-aligned block. Small calls would spend more time in page faults than in arithmetic
// if each one returned its block to the system; a block above `kKeptBytes` is returned.
class Scratch {
 public:
  static constexpr size_t kKeptBytes = size_t{64} << 20;

  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  // Returns at least `bytes` bytes with unspecified contents, or nullptr when memory is exhausted.
  // The previous block's contents are lost.
  std::byte* acquire(size_t bytes);

  // Ends the use of the block.
  void release();

 private:
  std::byte* block_ = nullptr;
  size_t size_ = 0;
};

// Divides a block into parts: `add` returns where each begins.
class ScratchLayout {
 public:
  size_t add(size_t bytes) {
    const size_t start = bytes_;
    bytes_ += page_rounded(bytes);
    return start;
  }

  // Of all parts so far.
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// Returns the calling thread's block.
Scratch& thread_scratch();

}  // namespace torchyard

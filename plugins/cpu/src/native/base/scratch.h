// Aligned working memory that a thread keeps between calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchyard {

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

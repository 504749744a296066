// What processes that share a segment find in it, and where.
//
// One segment is shared by one group of ranks. It starts with a `SegmentHeader`, then a `RankPage`
// per rank, a `ChannelHeader` per ordered pair of ranks, the ranks' staging memory and the pairs'
// rings. Every word is written by one rank alone, but for those that say otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace torchyard::shm {

constexpr int kMaxRanks = 64;
constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr uint64_t kMagic = 0x746f7263'73686d31;

// A position holds a collective's number above this bit, and its step below.
constexpr int kStepBits = 24;
constexpr uint64_t kLastStep = (uint64_t{1} << kStepBits) - 1;

// Data of at most so many bytes travel in the line that announces them.
constexpr size_t kInlineBytes = 40;

constexpr size_t kNoteBytes = 1024;

// Each rank stages a collective in one of two halves, alternately: whoever starts collective n has
// seen everyone enter n - 1, so everyone has left n - 2.
constexpr size_t kHalfBytes = size_t{1} << 20;
constexpr size_t kStagingBytes = 2 * kHalfBytes;
constexpr size_t kRingBytes = size_t{512} << 10;

// Where a rank is, and in what: written before `position`, which releases it.
struct alignas(kLine) Announcement {
  std::atomic<uint64_t> position;  // number << kStepBits | step; a futex by its lower half
  uint64_t what;                   // kind, dtype, operation, root: eight bits each, from the top
  uint64_t bytes;
  unsigned char data[kInlineBytes];
};
static_assert(sizeof(Announcement) == kLine);

struct alignas(kLine) Waiters {
  std::atomic<uint32_t> count;  // of sleepers, who write it themselves
};

// Rung by whoever put a message into a channel to the rank, or made room in one from it.
struct alignas(kLine) Bell {
  std::atomic<uint32_t> rings;  // a futex, written by everyone
  std::atomic<uint32_t> sleepers;
};

struct alignas(kPage) RankPage {
  Announcement announcements[2];
  Waiters waiters;
  Bell bell;
  std::atomic<uint32_t> left;      // 1 once the rank has left the group of its own will
  char note[kNoteBytes];           // what it had to say then; under `left`
  uint64_t lengths[2][kMaxRanks];  // bytes that a collective brings each rank; under `position`
};

struct alignas(kLine) SegmentHeader {
  uint64_t magic;
  uint64_t ranks;
  std::atomic<uint32_t> attached;  // by everyone; a futex
  // The first failure that anyone saw: code << 32 | rank + 1 at fault << 16 | witness + 1; 0 if
  // none.
  std::atomic<uint64_t> failure;
};

struct ChannelHeader {
  alignas(kLine) std::atomic<uint64_t> written;  // bytes, by the sender
  alignas(kLine) std::atomic<uint64_t> taken;    // bytes, by the receiver
};

// Precedes a message in a ring; messages start at multiples of a line.
struct alignas(kLine) MessageHeader {
  uint64_t bytes;
  int64_t tag;
};

constexpr size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Offsets of a segment's parts.
struct Layout {
  explicit constexpr Layout(size_t ranks)
      : pages(kPage),
        channels(pages + ranks * sizeof(RankPage)),
        staging(rounded(channels + ranks * ranks * sizeof(ChannelHeader), kPage)),
        rings(staging + ranks * kStagingBytes),
        bytes(rings + ranks * ranks * kRingBytes) {}

  size_t pages;
  size_t channels;
  size_t staging;
  size_t rings;
  size_t bytes;
};

}  // namespace torchyard::shm

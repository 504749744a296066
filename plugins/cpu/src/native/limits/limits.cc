#include "limits/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/aligned.h"
#include "base/isa/cpu_features.h"
#include "base/large_pages.h"
#include "base/threads.h"

namespace torchyard {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxRounds = 1 << 16;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Work that threads take piece by piece, until `pieces` are done.
struct Round {
  std::atomic<int64_t> next{0};
  int64_t pieces = 0;
};

struct ArithmeticRound : Round {
  const ArithmeticLoop* loop = nullptr;
};

void run_arithmetic(void* data) {
  auto* round = static_cast<ArithmeticRound*>(data);
  while (round->next.fetch_add(1) < round->pieces) round->loop->run();
}

// Lines of 64 bytes in pages, of which as many are read at once as this processor fetches ahead
// for (base/cpu_features.h).
constexpr int64_t kWords = 8;
constexpr int64_t kPageWords = 4096 / 8;
constexpr int64_t kPieceWords = (256 << 10) / 8;
// What a thread reads in a round: a millisecond's work, so that the median round is one in which
// nothing else took the cores. Rounds go through memory far beyond any cache.
constexpr int64_t kPiecesPerThread = 64;
constexpr int64_t kWindows = 16;

struct MemoryRound : Round {
  uint64_t* data = nullptr;
  bool in_parts = false;
};

template <int kParts>
void read_piece(const uint64_t* from) {
  uint64_t sums[kWords] = {0};
  for (int64_t block = 0; block < kPieceWords; block += kParts * kPageWords) {
    for (int64_t line = 0; line < kPageWords; line += kWords) {
      for (int64_t part = 0; part < kParts; ++part) {
        const uint64_t* words = from + block + part * kPageWords + line;
        // What the processor fetches ahead by itself ends with a page.
        if (kParts == 1) __builtin_prefetch(words + kPageWords);
        for (int64_t word = 0; word < kWords; ++word) sums[word] += words[word];
      }
    }
  }
  for (uint64_t sum : sums) __asm__ volatile("" : : "r"(sum));
}

void run_reading(void* data) {
  auto* round = static_cast<MemoryRound*>(data);
  for (int64_t piece; (piece = round->next.fetch_add(1)) < round->pieces;) {
    const uint64_t* from = round->data + piece * kPieceWords;
    round->in_parts ? read_piece<8>(from) : read_piece<1>(from);
  }
}

void run_updating(void* data) {
  auto* round = static_cast<MemoryRound*>(data);
  for (int64_t piece; (piece = round->next.fetch_add(1)) < round->pieces;) {
    uint64_t* words = round->data + piece * kPieceWords;
    for (int64_t word = 0; word < kPieceWords; ++word) words[word] += 1;
  }
}

// Memory that was written, in large pages where the system has them: with small ones misses of the
// translation would be measured too. Every round takes the next of its windows.
class Windows {
 public:
  explicit Windows(int threads)
      : pieces_(kPiecesPerThread * threads),
        memory_(allocate_aligned(size_t{2} << 20, bytes() * kWindows), &free_aligned) {
    if (memory_ == nullptr) return;
    const auto start = reinterpret_cast<uintptr_t>(memory_.get());
    Span span = {start, start + bytes() * kWindows};
    expect_writes(&span, 1);
    std::memset(memory_.get(), 1, bytes() * kWindows);
  }

  bool exist() const { return memory_ != nullptr; }

  // Bytes of one window.
  size_t bytes() const { return static_cast<size_t>(pieces_ * kPieceWords * 8); }

  void next(MemoryRound* round) {
    round->data = static_cast<uint64_t*>(memory_.get()) + (turn_++ % kWindows) * bytes() / 8;
    round->pieces = pieces_;
  }

 private:
  int64_t pieces_;
  size_t turn_ = 0;
  std::unique_ptr<void, decltype(&free_aligned)> memory_;
};

// Returns the rates of as many rounds as fit into `seconds`, in ascending order. `prepare()` makes
// a round ready.
template <class Prepare>
std::vector<double> rates(Round* round, void (*body)(void*), void* data, double work, int threads,
                          double seconds, Prepare prepare) {
  std::vector<double> found;
  const Clock::time_point begin = Clock::now();
  do {
    prepare();
    round->next = 0;
    const Clock::time_point start = Clock::now();
    run_on_threads(threads, body, data);
    found.push_back(work / seconds_since(start));
  } while (seconds_since(begin) < seconds && found.size() < kMaxRounds);
  // The first round wakes the threads, and counts only if there is no other.
  if (found.size() > 1) found.erase(found.begin());
  std::sort(found.begin(), found.end());
  return found;
}

// Returns the median rate over all windows, or 0 where there is no memory. Each byte of a window
// counts `times`.
double median_rate(void (*body)(void*), bool in_parts, double times, int threads, double seconds) {
  Windows windows(threads);
  if (!windows.exist()) return 0;
  MemoryRound round;
  round.in_parts = in_parts;
  const double work = times * static_cast<double>(windows.bytes());
  const std::vector<double> found =
      rates(&round, body, &round, work, threads, seconds, [&] { windows.next(&round); });
  return found[found.size() / 2];
}

}  // namespace

double operations_per_second(const ArithmeticLoop& loop, int threads, double seconds) {
  ArithmeticRound round;
  round.loop = &loop;
  round.pieces = kPiecesPerThread * threads;
  const double work = loop.run() * static_cast<double>(round.pieces);
  return rates(&round, run_arithmetic, &round, work, threads, seconds, [] {}).back();
}

double bytes_read_per_second(int threads, double seconds) {
  return std::max(median_rate(run_reading, false, 1, threads, seconds / 2),
                  median_rate(run_reading, true, 1, threads, seconds / 2));
}

double bytes_updated_per_second(int threads, double seconds) {
  return median_rate(run_updating, false, 2, threads, seconds);
}

}  // namespace torchyard

#include "topk/topk.h"

#include <atomic>
#include <new>

#include "base/math.h"
#include "base/threads.h"

namespace torchyard {

namespace {

// Elements below which a thread is woken for less than it costs, and that a part of a row has.
constexpr int64_t kLeastPerThread = 16384;
constexpr int64_t kLeastPerPart = 32768;
// Rows that a thread takes at once have so many elements at most; and it comes so often for more.
constexpr int64_t kMostAtOnce = 32768;
constexpr int64_t kTimes = 4;
// A buffer's. A smaller one is full more often, a larger one costs more before the first threshold.
constexpr int64_t kLeastCapacity = 128;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// One row's working memory: keys, indices, and room to sort.
struct Room {
  size_t keys, index, spare, bytes;

  Room(const TopKKernel& kernel, int64_t length, int64_t k, int64_t parts) {
    // A buffer, or what all parts of a row found.
    const int64_t found = parts * most(k, kTopKFew);
    const int64_t places = most(topk_capacity(length, k), found) + kTopKSlack;
    keys = 0;
    index = page_rounded(static_cast<size_t>(places) * kernel.key_bytes);
    spare = index + page_rounded(static_cast<size_t>(places) * sizeof(uint32_t));
    bytes = spare + page_rounded(static_cast<size_t>(least(k, length)) * 2 * 16);
  }
};

struct Work {
  const TopKArgs& args;
  const TopKKernel& kernel;
  Room room;
  int64_t parts;
  int64_t rows_at_once;           // that a thread takes, where a row has one part
  std::byte* shared;              // a room per row and part, where a row has several
  std::atomic<int64_t>* pending;  // parts of each row that are not selected yet, likewise
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
};

struct Row {
  const std::byte* x;
  const uint8_t* mask;
  int64_t length;
  int64_t base;
};

Row row_of(const TopKArgs& args, const TopKKernel& kernel, int64_t r) {
  const std::byte* x = static_cast<const std::byte*>(args.x);
  const int64_t bytes = static_cast<int64_t>(kernel.element_bytes);
  if (args.offsets != nullptr) {
    const int64_t begin = args.offsets[r];
    return {x + begin * bytes, nullptr, args.offsets[r + 1] - begin, begin};
  }
  const uint8_t* mask = args.mask == nullptr ? nullptr : args.mask + r * args.mask_row_stride;
  return {x + r * args.row_stride * bytes, mask, args.length, 0};
}

TopKBuffer buffer_in(std::byte* memory, const Room& room) {
  return {memory + room.keys, reinterpret_cast<uint32_t*>(memory + room.index), 0};
}

void finish_row(const Work& work, int64_t r, const Row& row, TopKBuffer* buffer, void* spare) {
  const TopKArgs& args = work.args;
  const int64_t width = args.order == TopKOrder::kLast ? 1 : args.k;
  std::byte* values = static_cast<std::byte*>(args.values);
  work.kernel.finish(row.x, args.k, args.largest, args.order, buffer, spare, row.base,
                     values + r * width * static_cast<int64_t>(work.kernel.element_bytes),
                     args.indices + r * width);
}

// Selects one part of a row; who comes last puts what the parts found together, in their order.
void run_part(Work& work, int64_t r, int64_t part) {
  const Row row = row_of(work.args, work.kernel, r);
  std::byte* rooms = work.shared + static_cast<size_t>(r * work.parts) * work.room.bytes;
  std::byte* mine = rooms + static_cast<size_t>(part) * work.room.bytes;
  const int64_t size = ceil_div(row.length, work.parts);
  TopKBuffer buffer = buffer_in(mine, work.room);
  const TopKPart stretch = {row.x, row.mask, least(part * size, row.length),
                            least((part + 1) * size, row.length)};
  work.kernel.select(stretch, work.args.k, work.args.largest, &buffer);
  // Kept where the sort's room begins, which nobody needs yet.
  *reinterpret_cast<int64_t*>(mine + work.room.spare) = buffer.count;
  if (work.pending[r].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  TopKBuffer all = buffer_in(rooms, work.room);
  for (int64_t p = 0; p < work.parts; ++p) {
    std::byte* theirs = rooms + static_cast<size_t>(p) * work.room.bytes;
    const TopKBuffer found = buffer_in(theirs, work.room);
    const int64_t count = *reinterpret_cast<int64_t*>(theirs + work.room.spare);
    if (p != 0) {
      const size_t key_bytes = work.kernel.key_bytes;
      __builtin_memcpy(
          static_cast<std::byte*>(all.keys) + static_cast<size_t>(all.count) * key_bytes,
          found.keys, static_cast<size_t>(count) * key_bytes);
      __builtin_memcpy(all.index + all.count, found.index,
                       static_cast<size_t>(count) * sizeof(uint32_t));
    }
    all.count += count;
  }
  finish_row(work, r, row, &all, rooms + work.room.spare);
}

void run(void* data) {
  Work& work = *static_cast<Work*>(data);
  const int64_t items = work.args.rows * work.parts;
  const int64_t each = work.rows_at_once;
  std::byte* memory = nullptr;
  if (work.parts == 1) {
    memory = thread_scratch().acquire(work.room.bytes);
    if (memory == nullptr) {
      work.failed.store(true, std::memory_order_relaxed);
      return;
    }
  }
  for (;;) {
    const int64_t first = work.next.fetch_add(each, std::memory_order_relaxed);
    if (first >= items) break;
    for (int64_t item = first; item < least(first + each, items); ++item) {
      if (work.parts > 1) {
        run_part(work, item / work.parts, item % work.parts);
        continue;
      }
      const Row row = row_of(work.args, work.kernel, item);
      TopKBuffer buffer = buffer_in(memory, work.room);
      work.kernel.select({row.x, row.mask, 0, row.length}, work.args.k, work.args.largest, &buffer);
      finish_row(work, item, row, &buffer, memory + work.room.spare);
    }
  }
  if (memory != nullptr) thread_scratch().release();
}

// How many parts a row is cut into, so that every thread has work. Each part finds k of its own,
// so a part is several times as long.
int64_t parts_of(const TopKArgs& args, int threads) {
  if (threads < 2 || args.offsets != nullptr || args.rows % threads == 0 ||
      args.rows >= 4 * int64_t{threads}) {
    return 1;
  }
  const int64_t wanted = ceil_div(2 * int64_t{threads}, args.rows);
  return most(1, least(wanted, args.length / most(kLeastPerPart, 8 * args.k)));
}

int64_t longest_row(const TopKArgs& args) {
  if (args.offsets == nullptr) return args.length;
  int64_t longest = 0;
  for (int64_t r = 0; r < args.rows; ++r) {
    longest = most(longest, args.offsets[r + 1] - args.offsets[r]);
  }
  return longest;
}

}  // namespace

int64_t topk_capacity(int64_t length, int64_t k) {
  return least(length, k > length / 3 ? length : most(kLeastCapacity, 3 * k));
}

bool offsets_fit(const TopKArgs& args) {
  if (args.offsets == nullptr) return true;
  bool rise = args.offsets[0] >= 0 && args.offsets[args.rows] <= args.length;
  for (int64_t r = 0; r < args.rows; ++r) rise = rise && args.offsets[r] <= args.offsets[r + 1];
  return rise;
}

bool topk(const TopKArgs& args, const TopKKernel& kernel, int threads) {
  if (args.rows == 0) return true;
  const int64_t longest = longest_row(args);
  const int64_t elements =
      args.offsets == nullptr ? args.rows * args.length : args.offsets[args.rows] - args.offsets[0];
  threads = static_cast<int>(most(1, least(threads, elements / kLeastPerThread)));
  const int64_t parts = parts_of(args, threads);
  const int64_t at_once =
      parts > 1 ? 1
                : least(args.rows / (kTimes * most(threads, 1)), kMostAtOnce / most(longest, 1));
  Work work{args,    kernel, Room(kernel, longest, args.k, parts), parts, most(at_once, 1),
            nullptr, nullptr};
  Scratch shared;
  if (parts > 1) {
    const size_t counters = page_rounded(static_cast<size_t>(args.rows) * sizeof(*work.pending));
    const size_t rooms = static_cast<size_t>(args.rows * parts) * work.room.bytes;
    std::byte* memory = shared.acquire(counters + rooms);
    if (memory == nullptr) return false;
    work.pending = reinterpret_cast<std::atomic<int64_t>*>(memory);
    for (int64_t r = 0; r < args.rows; ++r) new (&work.pending[r]) std::atomic<int64_t>(parts);
    work.shared = memory + counters;
  }
  run_on_threads(static_cast<int>(least(threads, args.rows * parts)), run, &work);
  // Said too where other threads did the rows of the one that had no memory.
  return !work.failed.load(std::memory_order_relaxed);
}

}  // namespace torchyard

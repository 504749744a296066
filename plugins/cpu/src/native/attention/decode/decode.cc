// Working memory and threads of one decoding call; the arithmetic is the kernel's.
#include "attention/decode/decode.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "attention/mask/mask.h"
#include "base/threads.h"
#include "base/work_runs.h"

namespace torchyard {

namespace {

// Waking a thread costs about as much as reading so many bytes.
constexpr int64_t kBytesPerThread = int64_t{1} << 17;

// Where each piece of working memory lies in the caller's one block.
struct Plan {
  int threads;
  int64_t heads;
  int64_t split_keys;
  int64_t splits;       // per head
  size_t state_floats;  // of one split
  size_t states_at;     // [heads][splits]
  size_t finished_at;   // [heads] std::atomic<int64_t>
  size_t thread_bytes;  // one thread: visibility words, kernel scratch
  size_t kernel_offset;
  size_t thread_at;
  size_t total;

  Plan(const ForwardArgs& args, const DecodeKernel& kernel, int thread_count)
      : threads(thread_count),
        heads(args.batches * args.key_heads),
        split_keys(args.tunables.keys_per_split),
        splits(std::max<int64_t>(1, ceil_div(args.keys, split_keys))),
        state_floats(kernel.state_floats(args)) {
    ScratchLayout layout;
    states_at = layout.add(static_cast<size_t>(heads * splits) * state_floats * sizeof(float));
    finished_at = layout.add(static_cast<size_t>(heads) * sizeof(std::atomic<int64_t>));
    kernel_offset = page_rounded(static_cast<size_t>(panels() * kMaxDecodeRows) * sizeof(uint64_t));
    thread_bytes = kernel_offset + page_rounded(kernel.scratch_bytes(args));
    thread_at = layout.add(thread_bytes * static_cast<size_t>(threads));
    total = layout.bytes();
  }

  int64_t panels() const { return split_keys / kPanelKeys; }  // per split
};

class Call {
 public:
  Call(const ForwardArgs& args, const DecodeKernel& kernel, const Plan& plan, std::byte* memory)
      : args_(args),
        kernel_(kernel),
        plan_(plan),
        memory_(memory),
        finished_(reinterpret_cast<std::atomic<int64_t>*>(memory + plan.finished_at)),
        rows_(static_cast<int>(args.query_heads / args.key_heads * args.query_rows)) {
    for (int64_t h = 0; h < plan.heads; ++h) new (&finished_[h]) std::atomic<int64_t>{0};
    runs_.start(plan.heads * plan.splits, plan.threads);
  }

  // Draws splits until none are left. Runs on every thread.
  void work() {
    WorkRuns::Worker worker(runs_);
    std::byte* mine =
        memory_ + plan_.thread_at + static_cast<size_t>(worker.thread()) * plan_.thread_bytes;
    // The next split is drawn early, so that its first keys are on their way when this one ends.
    WorkItems item = worker.draw();
    while (item.count != 0) {
      const WorkItems next = worker.draw();
      split(item.first, next.count == 0 ? -1 : next.first, mine);
      item = next;
    }
  }

 private:
  float* states(int64_t head) const {
    return reinterpret_cast<float*>(memory_ + plan_.states_at) +
           static_cast<size_t>(head * plan_.splits) * plan_.state_floats;
  }

  // The splits of a head's own keys; the first always counts.
  int64_t splits_of(int64_t head) const {
    return std::max<int64_t>(1, ceil_div(keys_of(args_, head / args_.key_heads), plan_.split_keys));
  }

  // Where the keys of a split begin; nullptr for one beyond the head's keys.
  const void* first_key(int64_t ticket) const {
    const int64_t head = ticket / plan_.splits;
    const int64_t key = ticket % plan_.splits * plan_.split_keys;
    int64_t at = head % args_.key_heads * args_.key.head;
    if (args_.pages == nullptr) {
      at += head / args_.key_heads * args_.key.batch + key * args_.key.row;
    } else {
      const Pages& pages = *args_.pages;
      const int64_t batch = head / args_.key_heads;
      if (key >= pages.lengths[batch]) return nullptr;
      at += pages.table[batch * pages.width + key / pages.page_keys] * args_.key.batch +
            key % pages.page_keys * args_.key.row;
    }
    return static_cast<const char*>(args_.key.data) + at * element_bytes(kernel_.dtype);
  }

  void split(int64_t ticket, int64_t next, std::byte* mine) {
    const int64_t head = ticket / plan_.splits;
    const int64_t number = ticket % plan_.splits;
    DecodeJob job;
    job.batch = head / args_.key_heads;
    job.key_head = head % args_.key_heads;
    job.first_key = number * plan_.split_keys;
    job.end_key = std::min(job.first_key + plan_.split_keys, keys_of(args_, job.batch));
    job.rows = rows_;
    job.words = nullptr;
    const int64_t own = splits_of(head);
    if (args_.mask != nullptr && number < own) {
      uint64_t* words = reinterpret_cast<uint64_t*>(mine);
      fill_words(job, words);
      job.words = words;
    }
    job.state = states(head) + static_cast<size_t>(number) * plan_.state_floats;
    job.scratch = mine + plan_.kernel_offset;
    job.next_key = next < 0 ? nullptr : first_key(next);
    if (number < own) kernel_.split(args_, job);
    if (finished_[head].fetch_add(1, std::memory_order_acq_rel) == plan_.splits - 1) {
      kernel_.finish(args_, job, states(head), own);
    }
  }

  void fill_words(const DecodeJob& job, uint64_t* words) const {
    std::fill(words, words + plan_.panels() * kMaxDecodeRows, uint64_t{0});
    const int64_t group = args_.query_heads / args_.key_heads;
    for (int64_t r = 0; r < rows_; ++r) {
      if (args_.mask->heads == 1 && r >= args_.query_rows) {
        for (int64_t p = 0; p < plan_.panels(); ++p) {
          words[p * kMaxDecodeRows + r] = words[p * kMaxDecodeRows + r - args_.query_rows];
        }
        continue;
      }
      row_words(args_, job.batch, job.key_head * group + r / args_.query_rows, r % args_.query_rows,
                job.first_key, job.end_key, words + r, kMaxDecodeRows);
    }
  }

  const ForwardArgs& args_;
  const DecodeKernel& kernel_;
  const Plan& plan_;
  std::byte* memory_;
  std::atomic<int64_t>* finished_;
  WorkRuns runs_;
  int rows_;
};

}  // namespace

bool suits_decode(const ForwardArgs& args) {
  return args.key_heads != 0 &&
         args.query_heads / args.key_heads * args.query_rows <= kMaxDecodeRows;
}

Status attention_decode(const ForwardArgs& args, const DecodeKernel& kernel, int threads,
                        bool poison) {
  if (args.batches == 0 || args.query_heads == 0 || args.query_rows == 0) return Status::kOk;
  const int64_t heads = args.batches * args.key_heads;
  const int64_t splits = std::max<int64_t>(1, ceil_div(args.keys, args.tunables.keys_per_split));
  int64_t keys = 0;
  for (int64_t b = 0; b < args.batches; ++b) keys += keys_of(args, b);
  const int64_t bytes =
      keys * args.key_heads * (args.head_dim + args.value_dim) * element_bytes(kernel.dtype);
  const int64_t useful = std::min(heads * splits, bytes / kBytesPerThread);
  threads = static_cast<int>(std::clamp<int64_t>(useful, 1, std::max(threads, 1)));
  const Plan plan(args, kernel, threads);
  Scratch& scratch = thread_scratch();
  std::byte* memory = scratch.acquire(plan.total);
  if (memory == nullptr) return Status::kOutOfMemory;
  if (poison) std::memset(memory, 0xff, plan.total);
  Call call(args, kernel, plan, memory);
  run_on_threads(threads, [](void* c) { static_cast<Call*>(c)->work(); }, &call);
  scratch.release();
  const bool failed = args.score != nullptr && args.score->failure->step >= 0;
  return failed ? Status::kIndexOutOfRange : Status::kOk;
}

}  // namespace torchyard

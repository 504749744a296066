#include "pointwise/pointwise.h"

#include <atomic>

#include "base/threads.h"

namespace torchyard {

namespace {

// Elements that a thread takes at a time: at least enough to be worth the taking, which are worth
// waking a thread for too, and at most so many; between them, each thread comes so often. Nothing
// is fetched ahead of a piece's first elements, so pieces are long where there is much.
constexpr int64_t kGrain = 1 << 14;
constexpr int64_t kMostGrains = 8;
constexpr int64_t kTimes = 16;
// Pieces of a row begin at such a column, so that no two threads write to one cache line.
constexpr int64_t kPieceColumns = 64;

struct Job {
  const PointwiseArgs* args;
  const ProgramKernel* kernel;
  size_t bytes;
  std::atomic<int64_t> taken;  // elements, in the order of groups
  int64_t elements;
  int64_t grain;
  std::atomic<bool> failed;
};

// The first of a group's rows or columns that belongs to the piece from element `at` on.
int64_t boundary(int64_t at, int64_t rows, int64_t columns) {
  if (at <= 0) return 0;
  if (at >= rows * columns) return rows == 1 ? columns : rows;
  return rows == 1 ? at / kPieceColumns * kPieceColumns : at / columns;
}

// Computes elements `from` to `to` of the groups, counted one after another, beginning the search
// for the first at group `*group`, which has `*before` elements before it.
void compute(const Job& job, int64_t from, int64_t to, int64_t* group, int64_t* before,
             std::byte* memory) {
  const Program& program = *job.args->program;
  const int64_t count = program.operand_count + program.result_count;
  ProgramPlace places[kMaxProgramPlaces];
  for (; *group < job.args->groups && *before < to; ++*group) {
    const int64_t rows = job.args->sizes[2 * *group];
    const int64_t columns = job.args->sizes[2 * *group + 1];
    const int64_t end = *before + rows * columns;
    if (end > from) {
      const int64_t first = boundary(from - *before, rows, columns);
      const int64_t last = boundary(to - *before, rows, columns);
      const int64_t row = rows == 1 ? 0 : first;
      const int64_t column = rows == 1 ? first : 0;
      for (int64_t i = 0; i < count; ++i) {
        const Element element = i < program.operand_count
                                    ? program.operands[i]
                                    : program.results[i - program.operand_count].element;
        places[i] = shifted(job.args->places[*group * count + i], element, row, column);
      }
      job.kernel->run(program, places, places + program.operand_count, rows == 1 ? 1 : last - first,
                      rows == 1 ? last - first : columns, memory);
      if (end > to) return;
    }
    *before = end;
  }
}

void run(void* data) {
  Job& job = *static_cast<Job*>(data);
  std::byte* memory = thread_scratch().acquire(job.bytes);
  if (memory == nullptr) {
    job.failed.store(true, std::memory_order_relaxed);
    return;
  }
  // Pieces are taken in order, so the search goes on where it was.
  int64_t group = 0;
  int64_t before = 0;
  for (;;) {
    const int64_t from = job.taken.fetch_add(job.grain, std::memory_order_relaxed);
    if (from >= job.elements) break;
    compute(job, from, from + job.grain, &group, &before, memory);
  }
  thread_scratch().release();
}

}  // namespace

bool pointwise(const PointwiseArgs& args, const ProgramKernel& kernel, int threads) {
  Job job;
  job.args = &args;
  job.kernel = &kernel;
  job.bytes = kernel.bytes(*args.program);
  job.taken.store(0);
  job.elements = 0;
  job.failed.store(false);
  for (int64_t g = 0; g < args.groups; ++g) {
    job.elements += args.sizes[2 * g] * args.sizes[2 * g + 1];
  }
  const int64_t grains = job.elements / kGrain / (kTimes * threads);
  job.grain = kGrain * (grains < 1 ? 1 : grains < kMostGrains ? grains : kMostGrains);
  const int64_t useful = (job.elements + kGrain - 1) / kGrain;
  run_on_threads(static_cast<int>(useful < threads ? useful : threads), run, &job);
  return !job.failed.load();
}

}  // namespace torchyard

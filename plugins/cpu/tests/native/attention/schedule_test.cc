// Every schedule hands out each piece of work once, and never one that waits for a later ticket.
#include "attention/forward/schedule.h"

#include <cstdio>
#include <vector>

#include "attention/decode/decode.h"

namespace {

using torchyard::ForwardArgs;
using torchyard::Schedule;
using torchyard::Ticket;

// Draws all tickets in order; returns what is wrong with them, or nullptr.
const char* fault(const Schedule& schedule) {
  std::vector<std::vector<int>> packs(schedule.heads, std::vector<int>(schedule.packs_per_head));
  std::vector<std::vector<int>> rows(schedule.heads, std::vector<int>(schedule.items_per_head));
  std::vector<int64_t> packed(schedule.heads);
  std::vector<int64_t> finished(schedule.heads);
  for (int64_t number = 0; number < schedule.tickets; ++number) {
    const Ticket ticket = schedule.ticket(number);
    if (ticket.head < 0 || ticket.head >= schedule.heads) return "no such head";
    if (ticket.kind == Ticket::Kind::kHead) {
      if (!schedule.whole_heads || packed[ticket.head] != 0) return "a head in parts too";
      packed[ticket.head] = schedule.packs_per_head;
      finished[ticket.head] = schedule.items_per_head;
      continue;
    }
    auto& seen = ticket.kind == Ticket::Kind::kPack ? packs : rows;
    if (ticket.part < 0 || ticket.part >= static_cast<int64_t>(seen[ticket.head].size())) {
      return "no such part";
    }
    if (seen[ticket.head][ticket.part]++ != 0) return "handed out twice";
    if (ticket.kind == Ticket::Kind::kRows) {
      if (packed[ticket.head] != schedule.packs_per_head) return "rows before their keys";
      ++finished[ticket.head];
    } else {
      const int64_t previous = ticket.head - schedule.ring;
      if (previous >= 0 && finished[previous] != schedule.items_per_head) {
        return "packs over keys in use";
      }
      ++packed[ticket.head];
    }
  }
  for (int64_t head = 0; head < schedule.heads; ++head) {
    if (packed[head] != schedule.packs_per_head) return "keys never packed";
    if (finished[head] != schedule.items_per_head) return "rows never computed";
  }
  return nullptr;
}

}  // namespace

int main() {
  int cases = 0;
  int whole = 0;
  int failures = 0;
  const torchyard::ForwardKernel& kernel = torchyard::kForwardKernels[0];
  for (const int64_t batches : {1, 3, 40}) {
    for (const int64_t heads : {1, 2, 6}) {
      for (const int64_t rows : {1, 5, 6, 127, 128, 1000}) {
        for (const int64_t keys : {0, 1, 64, 513, 3000}) {
          for (const int threads : {1, 2, 7, 64, 1024}) {
            ForwardArgs args{};
            args.batches = batches;
            args.key_heads = heads;
            args.query_heads = heads * 2;
            args.query_rows = rows;
            args.keys = keys;
            args.head_dim = args.value_dim = 8;
            const Schedule schedule(args, kernel, threads);
            ++cases;
            whole += schedule.whole_heads;
            const bool crowded = threads > 1 && keys <= 512 && batches * heads >= 16 * threads;
            if (schedule.whole_heads != crowded ||
                (crowded && (schedule.ring != threads || schedule.tickets != batches * heads))) {
              ++failures;
              std::printf("heads are handed out wrongly\n");
            }
            if (const char* what = fault(schedule)) {
              ++failures;
              std::printf("B%d H%d rows %d keys %d threads %d: %s\n", static_cast<int>(batches),
                          static_cast<int>(heads), static_cast<int>(rows), static_cast<int>(keys),
                          threads, what);
            }
          }
        }
      }
    }
  }
  std::printf("%d cases, %d of whole heads, %d failures\n", cases, whole, failures);
  return cases == 0 || whole == 0 || failures != 0;
}

// How a collective is entered: what each rank says of it, and that all say the same.
#pragma once

#include <cstring>

#include "shm/collectives.h"

namespace torchyard::shm {

struct Entry {
  uint64_t number;
  uint64_t what;
  uint64_t bytes;
};

inline uint64_t packed(Kind kind, unsigned dtype, unsigned operation, unsigned root) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(dtype) << 48 |
         static_cast<uint64_t>(operation) << 40 | static_cast<uint64_t>(root) << 32;
}

// Starts a collective; nothing is visible before the first post. Data of up to kInlineBytes may be
// put into the announcement meanwhile.
inline Entry enter(Group& group, uint64_t what, uint64_t bytes) {
  const Entry entry{group.begin(), what, bytes};
  Announcement& mine = group.announcement(group.rank(), entry.number);
  mine.what = what;
  mine.bytes = bytes;
  return entry;
}

// Waits for a rank's first step, and compares what it entered with what this rank did.
inline Outcome await_entry(Group& group, const Entry& entry, int rank, const Patience& patience) {
  const Outcome outcome = group.await(rank, entry.number, 1, patience);
  if (!outcome.ok()) return outcome;
  const Announcement& theirs = group.announcement(rank, entry.number);
  if (theirs.what == entry.what && theirs.bytes == entry.bytes) return {};
  Outcome mismatch{Code::kMismatch, uint64_t{1} << rank};
  mismatch.theirs[0] = theirs.what;
  mismatch.theirs[1] = theirs.bytes;
  mismatch.ours[0] = entry.what;
  mismatch.ours[1] = entry.bytes;
  return group.fail(mismatch);
}

inline Outcome await_entries(Group& group, const Entry& entry, const Patience& patience) {
  for (int rank = 0; rank < group.ranks(); ++rank) {
    if (rank == group.rank()) continue;
    const Outcome outcome = await_entry(group, entry, rank, patience);
    if (!outcome.ok()) return outcome;
  }
  return {};
}

inline Outcome await_all(Group& group, uint64_t number, uint64_t step, const Patience& patience) {
  for (int rank = 0; rank < group.ranks(); ++rank) {
    if (rank == group.rank()) continue;
    const Outcome outcome = group.await(rank, number, step, patience);
    if (!outcome.ok()) return outcome;
  }
  return {};
}

}  // namespace torchyard::shm

// Collectives over a group's segment.
//
// All ranks of a group call them in the same order. Each returns when this rank's part is done and
// every rank has entered; a failure breaks the group, and buffers hold nothing of use then. Results
// have the same bits on every rank: sources are combined in the order of ranks, each element by one
// rank or by all alike. No rank ever reads another's own memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/group.h"
#include "shm/reduce/reduce.h"

namespace torchyard::shm {

enum class Kind : uint8_t {
  kBarrier = 1,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kGather,
  kScatter,
  kAllToAll,
};

struct Arithmetic {
  Dtype dtype;
  Operation operation;
  Reduction reduce;  // what find_reduction returns for them
};

// `out` [count] of every rank; it may be `in`.
Outcome all_reduce(Group& group, const void* in, void* out, size_t count,
                   const Arithmetic& arithmetic, const Patience& patience);

// Likewise, `out` of rank `root` alone; that of others is left as it is.
Outcome reduce(Group& group, const void* in, void* out, size_t count, const Arithmetic& arithmetic,
               int root, const Patience& patience);

// `out` [counts[rank]] is the reduction of everyone's in[rank]; `counts` is the same on all ranks.
Outcome reduce_scatter(Group& group, const void* const* in, void* out, const size_t* counts,
                       const Arithmetic& arithmetic, const Patience& patience);

// A place in this process's memory.
struct Place {
  void* data;
  size_t bytes;
};

// Moves bytes: to every rank one and the same piece, to.data, or to each its own, to[rank].
//
// What comes from rank r goes to from[r], and has exactly that many bytes; where from[r].bytes is 0
// nothing is read. A rank's own piece is copied too, unless it lies where it should.
struct Movement {
  Kind kind;
  int root;        // part of what must agree on all ranks; 0 where there is none
  uint64_t bytes;  // likewise
  bool shared;
  const Place* to;    // one place if shared, else a place for each rank
  const Place* from;  // a place for each rank
};
Outcome move(Group& group, const Movement& movement, const Patience& patience);

Outcome barrier(Group& group, const Patience& patience);

}  // namespace torchyard::shm

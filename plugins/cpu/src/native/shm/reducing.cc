// all_reduce, reduce and reduce_scatter.
#include <algorithm>

#include "shm/announce.h"
#include "shm/collectives.h"

namespace torchyard::shm {

namespace {

// Up to here every rank reduces everything: that costs one wait instead of two.
constexpr size_t kDirectBytes = size_t{64} << 10;
// Larger data go round by round through slots of the staging memory.
constexpr size_t kSlots = 4;
constexpr size_t kSlotBytes = kHalfBytes / kSlots;
constexpr size_t kLeastSlotBytes = size_t{32} << 10;

constexpr size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

// A run of elements of a round.
struct Part {
  size_t start;
  size_t count;
};

// The part of a round's `count` elements that a rank reduces. Rounds that are shorter than a slot
// are cut where full ones are: a slot's parts are never mixed.
Part part_of(size_t count, size_t share, int rank) {
  const size_t start = std::min(count, share * static_cast<size_t>(rank));
  return {start, std::min(count - start, share)};
}

const std::byte* bytes_at(const void* data, size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* bytes_at(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

// One all_reduce or reduce: who keeps the result, and what it works on.
struct Whole {
  Group& group;
  Entry entry;
  const void* in;
  void* out;
  size_t count;
  const Arithmetic& arithmetic;
  bool keeps;
  const Patience& patience;
};

Outcome reduce_inline(const Whole& call, size_t element) {
  Group& group = call.group;
  const size_t bytes = call.count * element;
  copy_bytes(group.announcement(group.rank(), call.entry.number).data, call.in, bytes);
  group.post(call.entry.number, kLastStep);
  const Outcome outcome = await_entries(group, call.entry, call.patience);
  if (!outcome.ok() || !call.keeps) return outcome;
  const void* sources[kMaxRanks];
  for (int rank = 0; rank < group.ranks(); ++rank) {
    sources[rank] = group.announcement(rank, call.entry.number).data;
  }
  call.arithmetic.reduce(sources, group.ranks(), call.count, call.out, nullptr);
  return {};
}

Outcome reduce_directly(const Whole& call, size_t element) {
  Group& group = call.group;
  copy_bytes(group.staging(group.rank(), call.entry.number), call.in, call.count * element);
  group.post(call.entry.number, kLastStep);
  const Outcome outcome = await_entries(group, call.entry, call.patience);
  if (!outcome.ok() || !call.keeps) return outcome;
  const void* sources[kMaxRanks];
  for (int rank = 0; rank < group.ranks(); ++rank) {
    sources[rank] = group.staging(rank, call.entry.number);
  }
  sources[group.rank()] = call.in;
  call.arithmetic.reduce(sources, group.ranks(), call.count, call.out, nullptr);
  return {};
}

// Round i: (put) each rank copies what others reduce into its slot; (sum) each reduces its part,
// into its slot too, where nobody reads its input; (take) each copies the other parts. Put(t),
// sum(t - 1) and take(t - 2) follow one another, so that what is waited for was asked for a round
// before.
Outcome reduce_in_rounds(const Whole& call, size_t element) {
  Group& group = call.group;
  const uint64_t number = call.entry.number;
  const int me = group.rank();
  const size_t ranks = static_cast<size_t>(group.ranks());
  const size_t total = call.count * element;
  const size_t slot_bytes =
      std::clamp(rounded(ceil_div(total, kSlots), kPage), kLeastSlotBytes, kSlotBytes);
  const size_t per_round = slot_bytes / element;
  const size_t share = rounded(ceil_div(per_round, ranks), kLine / element);
  const size_t rounds = ceil_div(call.count, per_round);
  const auto size_of = [&](size_t round) {
    return std::min(per_round, call.count - round * per_round);
  };
  const auto slot = [&](int rank, size_t round) {
    return group.staging(rank, number) + round % kSlots * slot_bytes;
  };
  for (size_t turn = 0; turn < rounds + 2; ++turn) {
    if (turn < rounds) {
      if (turn >= kSlots) {
        // Others have summed what the slot held.
        const Outcome outcome =
            await_all(group, number, 2 * (turn - kSlots + 1) + 2, call.patience);
        if (!outcome.ok()) return outcome;
      }
      const size_t count = size_of(turn);
      const std::byte* from = bytes_at(call.in, turn * slot_bytes);
      const Part mine = part_of(count, share, me);
      copy_bytes(slot(me, turn), from, mine.start * element);
      const size_t end = mine.start + mine.count;
      copy_bytes(slot(me, turn) + end * element, from + end * element, (count - end) * element);
      group.post(number, 2 * turn + 1);
    }
    if (turn >= 1 && turn <= rounds) {
      const size_t round = turn - 1;
      const Outcome outcome = round == 0 ? await_entries(group, call.entry, call.patience)
                                         : await_all(group, number, 2 * round + 1, call.patience);
      if (!outcome.ok()) return outcome;
      const Part mine = part_of(size_of(round), share, me);
      if (mine.count != 0) {
        const void* sources[kMaxRanks];
        for (size_t rank = 0; rank < ranks; ++rank) {
          sources[rank] = slot(static_cast<int>(rank), round) + mine.start * element;
        }
        const size_t offset = round * slot_bytes + mine.start * element;
        sources[me] = bytes_at(call.in, offset);
        call.arithmetic.reduce(sources, group.ranks(), mine.count,
                               slot(me, round) + mine.start * element,
                               call.keeps ? bytes_at(call.out, offset) : nullptr);
      }
      group.post(number, 2 * turn + 2);
    }
    if (turn >= 2 && call.keeps) {
      const size_t round = turn - 2;
      for (size_t i = 1; i < ranks; ++i) {
        // Each begins with another rank, so that not all read the same.
        const int rank = static_cast<int>((static_cast<size_t>(me) + i) % ranks);
        const Outcome outcome = group.await(rank, number, 2 * (round + 1) + 2, call.patience);
        if (!outcome.ok()) return outcome;
        const Part part = part_of(size_of(round), share, rank);
        copy_bytes(bytes_at(call.out, round * slot_bytes + part.start * element),
                   slot(rank, round) + part.start * element, part.count * element);
      }
    }
  }
  group.post(number, kLastStep);
  return {};
}

Outcome reduce_whole(Whole call) {
  const size_t element = element_bytes(call.arithmetic.dtype);
  const size_t bytes = call.count * element;
  if (bytes <= kInlineBytes) return reduce_inline(call, element);
  if (bytes <= kDirectBytes) return reduce_directly(call, element);
  return reduce_in_rounds(call, element);
}

uint64_t described(Kind kind, const Arithmetic& arithmetic, int root) {
  return packed(kind, static_cast<unsigned>(arithmetic.dtype) + 1,
                static_cast<unsigned>(arithmetic.operation) + 1, static_cast<unsigned>(root));
}

}  // namespace

Outcome all_reduce(Group& group, const void* in, void* out, size_t count,
                   const Arithmetic& arithmetic, const Patience& patience) {
  const Entry entry = enter(group, described(Kind::kAllReduce, arithmetic, 0),
                            count * element_bytes(arithmetic.dtype));
  return reduce_whole({group, entry, in, out, count, arithmetic, true, patience});
}

Outcome reduce(Group& group, const void* in, void* out, size_t count, const Arithmetic& arithmetic,
               int root, const Patience& patience) {
  const Entry entry = enter(group, described(Kind::kReduce, arithmetic, root),
                            count * element_bytes(arithmetic.dtype));
  return reduce_whole({group, entry, in, out, count, arithmetic, root == group.rank(), patience});
}

Outcome reduce_scatter(Group& group, const void* const* in, void* out, const size_t* counts,
                       const Arithmetic& arithmetic, const Patience& patience) {
  const size_t element = element_bytes(arithmetic.dtype);
  const int me = group.rank();
  const size_t ranks = static_cast<size_t>(group.ranks());
  size_t total = 0;
  size_t longest = 0;
  // Mixed with their places, so that other divisions of the same sum differ.
  for (size_t rank = 0; rank < ranks; ++rank) {
    total += counts[rank] * element * (2 * rank + 1);
    longest = std::max(longest, counts[rank]);
  }
  const Entry entry = enter(group, described(Kind::kReduceScatter, arithmetic, 0), total);
  // A slot has room for a piece of each rank's part.
  const size_t piece_bytes = kSlotBytes / ranks / kLine * kLine;
  const size_t per_round = piece_bytes / element;
  const size_t rounds = std::max(size_t{1}, ceil_div(longest, per_round));
  const auto piece = [&](size_t rank, size_t round) {
    const size_t start = std::min(counts[rank], round * per_round);
    return Part{start, std::min(counts[rank] - start, per_round)};
  };
  const auto place = [&](size_t from, size_t to, size_t round) {
    return group.staging(static_cast<int>(from), entry.number) + round % kSlots * kSlotBytes +
           to * piece_bytes;
  };
  for (size_t turn = 0; turn < rounds + 1; ++turn) {
    if (turn < rounds) {
      if (turn >= kSlots) {
        const Outcome outcome =
            await_all(group, entry.number, 2 * (turn - kSlots + 1) + 2, patience);
        if (!outcome.ok()) return outcome;
      }
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (static_cast<int>(rank) == me) continue;
        const Part part = piece(rank, turn);
        copy_bytes(place(static_cast<size_t>(me), rank, turn),
                   bytes_at(in[rank], part.start * element), part.count * element);
      }
      group.post(entry.number, 2 * turn + 1);
    }
    if (turn >= 1) {
      const size_t round = turn - 1;
      const Outcome outcome = round == 0 ? await_entries(group, entry, patience)
                                         : await_all(group, entry.number, 2 * round + 1, patience);
      if (!outcome.ok()) return outcome;
      const Part mine = piece(static_cast<size_t>(me), round);
      if (mine.count != 0) {
        const void* sources[kMaxRanks];
        for (size_t rank = 0; rank < ranks; ++rank) {
          sources[rank] = place(rank, static_cast<size_t>(me), round);
        }
        sources[me] = bytes_at(in[me], mine.start * element);
        arithmetic.reduce(sources, group.ranks(), mine.count, bytes_at(out, mine.start * element),
                          nullptr);
      }
      group.post(entry.number, 2 * turn + 2);
    }
  }
  group.post(entry.number, kLastStep);
  return {};
}

}  // namespace torchyard::shm

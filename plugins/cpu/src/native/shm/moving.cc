// Collectives that only move bytes, and the barrier.
#include <algorithm>

#include "shm/announce.h"
#include "shm/collectives.h"

namespace torchyard::shm {

namespace {

constexpr size_t kSlots = 4;
constexpr size_t kSlotBytes = kHalfBytes / kSlots;

// The part of a piece that one round carries.
struct Span {
  size_t start;
  size_t bytes;
};

Span span_of(size_t total, size_t per_round, size_t round) {
  const size_t start = std::min(total, round * per_round);
  return {start, std::min(total - start, per_round)};
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

std::byte* bytes_at(const Place& place, size_t offset) {
  return static_cast<std::byte*>(place.data) + offset;
}

Outcome wrong_length(Group& group, const Entry& entry, int rank, uint64_t theirs, uint64_t ours) {
  Outcome mismatch{Code::kMismatch, uint64_t{1} << rank};
  mismatch.theirs[0] = mismatch.ours[0] = entry.what;
  mismatch.theirs[1] = theirs;
  mismatch.ours[1] = ours;
  return group.fail(mismatch);
}

Outcome move_inline(Group& group, const Entry& entry, const Movement& movement,
                    const Patience& patience) {
  const int me = group.rank();
  copy_bytes(group.announcement(me, entry.number).data, movement.to->data, movement.to->bytes);
  group.post(entry.number, kLastStep);
  const Outcome outcome = await_entries(group, entry, patience);
  if (!outcome.ok()) return outcome;
  for (int rank = 0; rank < group.ranks(); ++rank) {
    const Place& place = movement.from[rank];
    copy_bytes(place.data, group.announcement(rank, entry.number).data, place.bytes);
  }
  return {};
}

}  // namespace

Outcome move(Group& group, const Movement& movement, const Patience& patience) {
  const int me = group.rank();
  const int ranks = group.ranks();
  const Entry entry = enter(
      group, packed(movement.kind, 0, 0, static_cast<unsigned>(movement.root)), movement.bytes);
  const auto outgoing = [&](int rank) -> const Place& {
    return movement.shared ? *movement.to : movement.to[rank];
  };
  // Announced sizes agree, so that ranks decide alike.
  if (movement.shared && movement.bytes != 0 && movement.bytes <= kInlineBytes) {
    return move_inline(group, entry, movement, patience);
  }
  const size_t per_round =
      movement.shared ? kSlotBytes : kSlotBytes / static_cast<size_t>(ranks) / kLine * kLine;
  uint64_t* lengths = group.page(me).lengths[entry.number & 1];
  size_t longest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    lengths[rank] = outgoing(rank).bytes;
    if (rank != me) longest = std::max({longest, outgoing(rank).bytes, movement.from[rank].bytes});
  }
  const auto place = [&](int from, int to, size_t round) {
    return group.staging(from, entry.number) + round % kSlots * kSlotBytes +
           (movement.shared ? 0 : static_cast<size_t>(to) * per_round);
  };
  const Place& own_to = movement.from[me];
  const Place& own_from = outgoing(me);
  const bool own = own_to.bytes != 0 && own_to.data != own_from.data;
  const size_t own_rounds = own ? (own_to.bytes + per_round - 1) / per_round : 0;
  const size_t rounds = std::max({size_t{1}, (longest + per_round - 1) / per_round, own_rounds});
  for (size_t turn = 0; turn < rounds + 1; ++turn) {
    if (turn < rounds) {
      for (int to = 0; to < ranks; ++to) {
        if (to == me) continue;
        const Span span = span_of(outgoing(to).bytes, per_round, turn);
        if (span.bytes == 0) continue;
        if (turn >= kSlots) {
          // Whoever has done its part needs nothing of ours any more.
          const uint64_t step = 2 * (turn - kSlots + 1) + 2;
          const Outcome outcome = movement.shared ? await_all(group, entry.number, step, patience)
                                                  : group.await(to, entry.number, step, patience);
          if (!outcome.ok()) return outcome;
        }
        copy_bytes(place(me, to, turn), bytes_at(outgoing(to), span.start), span.bytes);
        if (movement.shared) break;
      }
      if (own) {
        const Span span = span_of(own_to.bytes, per_round, turn);
        copy_bytes(bytes_at(own_to, span.start), bytes_at(own_from, span.start), span.bytes);
      }
      group.post(entry.number, 2 * turn + 1);
    }
    if (turn >= 1) {
      const size_t round = turn - 1;
      if (round == 0) {
        const Outcome outcome = await_entries(group, entry, patience);
        if (!outcome.ok()) return outcome;
      }
      for (int i = 1; i < ranks; ++i) {
        const int from = (me + i) % ranks;
        const Place& target = movement.from[from];
        if (round == 0 && (target.bytes != 0 || movement.kind == Kind::kAllToAll)) {
          const uint64_t theirs = group.page(from).lengths[entry.number & 1][me];
          if (theirs != target.bytes) {
            return wrong_length(group, entry, from, theirs, target.bytes);
          }
        }
        const Span span = span_of(target.bytes, per_round, round);
        if (span.bytes == 0) continue;
        const Outcome outcome = group.await(from, entry.number, 2 * round + 1, patience);
        if (!outcome.ok()) return outcome;
        copy_bytes(bytes_at(target, span.start), place(from, me, round), span.bytes);
      }
      group.post(entry.number, 2 * turn + 2);
    }
  }
  group.post(entry.number, kLastStep);
  return {};
}

Outcome barrier(Group& group, const Patience& patience) {
  const Entry entry = enter(group, packed(Kind::kBarrier, 0, 0, 0), 0);
  group.post(entry.number, kLastStep);
  return await_entries(group, entry, patience);
}

}  // namespace torchyard::shm

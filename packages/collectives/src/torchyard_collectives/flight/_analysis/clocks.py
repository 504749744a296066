"""One clock for all ranks, although hosts disagree about the time.

A rank cannot leave an all_reduce before the last one has come to it. So every completed collective
bounds how far two ranks' clocks differ: ``entered`` of one is no later than ``completed`` of the
other. Wall clocks are believed as far as these bounds allow and moved by the least amount where
they do not. ``completed`` is an upper bound (the recorder looks now and then), so the bounds stay
true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchyard_collectives.flight._history import RankHistory, Record, State

__all__ = ["ALL_WAIT", "Clocks", "align_clocks"]

# What no rank gets out of before all have come.
ALL_WAIT: Final = frozenset(
    {
        "all_gather",
        "all_gather_into_tensor",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "reduce_scatter",
        "reduce_scatter_tensor",
    }
)


@dataclass(frozen=True, slots=True)
class Clocks:
    """How each rank's monotonic clock becomes the common one, in nanoseconds.

    Attributes:
        offsets: added to a rank's monotonic clock.
        corrected: by how much a rank's wall clock was found wrong, for the ranks where it was.
        uncertain: by how much two ranks' times may still be wrong against each other where nothing
            bounds them: the widest gap between the bounds of a rank; None without bounds.
    """

    offsets: Mapping[int, int]
    corrected: Mapping[int, int]
    uncertain: int | None

    def time(self, rank: int, monotonic: int) -> int:
        """Return the common clock's nanoseconds at a time of a rank's monotonic clock."""
        return monotonic + self.offsets[rank]


def align_clocks(histories: Mapping[int, RankHistory]) -> Clocks:
    """Return the common clock: the wall clock of the lowest rank, as far as it is known."""
    ranks = sorted(histories)
    offsets = {rank: histories[rank].wall_minus_monotonic for rank in ranks}
    corrected: dict[int, int] = {}
    widest: int | None = None
    placed: list[int] = ranks[:1]
    calls = {rank: _waited(histories[rank].records) for rank in ranks}
    for rank in ranks[1:]:
        low, high = _bounds(calls, offsets, placed, rank)
        placed.append(rank)
        if low is None or high is None or low > high:
            continue
        widest = max(widest or 0, high - low)
        wanted = min(max(offsets[rank], low), high)
        if wanted != offsets[rank]:
            corrected[rank] = wanted - offsets[rank]
            offsets[rank] = wanted
    return Clocks(offsets, corrected, widest)


def _waited(records: Sequence[Record]) -> dict[tuple[str, int], Record]:
    return {
        (record.group, record.sequence): record
        for record in records
        if record.op in ALL_WAIT and not record.is_p2p and record.state is State.COMPLETED
    }


def _bounds(
    calls: Mapping[int, Mapping[tuple[str, int], Record]],
    offsets: Mapping[int, int],
    placed: Sequence[int],
    rank: int,
) -> tuple[int | None, int | None]:
    """Return the least and the greatest offset of a rank that put no effect before its cause."""
    low: int | None = None
    high: int | None = None
    for key, mine in calls[rank].items():
        for other in placed:
            theirs = calls[other].get(key)
            if theirs is None or theirs.op != mine.op:
                continue
            if mine.completed is not None:
                least = theirs.entered + offsets[other] - mine.completed
                low = least if low is None else max(low, least)
            if theirs.completed is not None:
                most = theirs.completed + offsets[other] - mine.entered
                high = most if high is None else min(high, most)
    return low, high

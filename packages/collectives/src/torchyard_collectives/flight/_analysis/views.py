"""One group's collectives as each of its ranks recorded them, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from torchyard_collectives.flight._analysis.laws import call_of
from torchyard_collectives.flight._history import RankHistory, Record

__all__ = ["GroupView", "group_views"]

_FARTHEST: Final = 256
_MOST_PARTINGS: Final = 32


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group's collectives by global rank and sequence number.

    Attributes:
        name: of the group.
        ranks: the group's global ranks in its order.
        calls: what is kept; only ranks that left a dump.
        issued: how many collectives each of these ranks has issued.
    """

    name: str
    ranks: tuple[int, ...]
    calls: Mapping[int, Mapping[int, Record]]
    issued: Mapping[int, int]

    @property
    def silent(self) -> tuple[int, ...]:
        """Ranks of the group that left no dump."""
        return tuple(rank for rank in self.ranks if rank not in self.issued)

    def at(self, sequence: int) -> dict[int, Record]:
        """Return the known calls with a number, by rank."""
        found: dict[int, Record] = {}
        for rank, calls in self.calls.items():
            if sequence in calls:
                found[rank] = calls[sequence]
        return found

    def sequences(self) -> list[int]:
        """Return every number that some rank still knows, ascending."""
        return sorted({sequence for calls in self.calls.values() for sequence in calls})

    def following(self, rank: int, start: int) -> list[Record]:
        """Return a rank's calls from a number on, until one is missing."""
        found: list[Record] = []
        while start + len(found) in self.calls[rank]:
            found.append(self.calls[rank][start + len(found)])
        return found

    def partings(self, one: int, other: int, last: int) -> list[int]:
        """Return the numbers up to one at which two ranks were at different places, first first.

        Only the earliest are tried: each is the start of a comparison of all that follows.
        """
        mine, theirs = self.calls[one], self.calls[other]
        found = [
            number
            for number in sorted(mine.keys() & theirs.keys())
            if number <= last and mine[number].places != theirs[number].places
        ]
        return found[:_MOST_PARTINGS]


def group_views(histories: Mapping[int, RankHistory]) -> tuple[GroupView, ...]:
    """Return every group with at least two ranks, those of most ranks first."""
    # Groups that were split off at one time may share a name and have different ranks.
    known = {
        (g.name, g.ranks): g for history in histories.values() for g in history.groups.values()
    }
    views = [_view(name, ranks, histories) for name, ranks in known if len(ranks) > 1]
    return tuple(sorted(views, key=lambda view: (-len(view.ranks), view.name)))


def _view(name: str, ranks: tuple[int, ...], histories: Mapping[int, RankHistory]) -> GroupView:
    calls: dict[int, dict[int, Record]] = {}
    issued: dict[int, int] = {}
    numbered = True
    for rank in ranks:
        history = histories.get(rank)
        if history is None:
            continue
        group = history.groups.get(name)
        if group is not None and group.ranks != ranks:
            group = None
        own = {
            record.sequence: record
            for record in (history.records if group is not None else ())
            if record.group == name and not record.is_p2p
        }
        calls[rank] = own
        issued[rank] = max([group.issued if group else 0, *(number + 1 for number in own)])
        numbered &= group is None or group.numbered
    view = GroupView(name, ranks, calls, issued)
    return view if numbered else _renumbered(view)


def _renumbered(view: GroupView) -> GroupView:
    """Number the calls so that most of them agree: recorders that began at different times."""
    known = [rank for rank in view.ranks if view.calls.get(rank)]
    if not known:
        return view
    calls = dict(view.calls)
    issued = dict(view.issued)
    reference = {number: _token(call) for number, call in calls[known[0]].items()}
    for rank in known[1:]:
        mine = {number: _token(call) for number, call in calls[rank].items()}
        votes: dict[int, int] = {}
        first = min(reference) - min(mine)
        for shift in sorted({0, *range(first - _FARTHEST, first + _FARTHEST)}, key=abs):
            votes[shift] = sum(
                reference.get(number + shift) == token for number, token in mine.items()
            )
        # The ends were written at about the same time, so of equal ones the nearest to them.
        end = max(reference) - max(mine)
        shift = max(votes, key=lambda shift: (votes[shift], -abs(shift - end)))
        calls[rank] = {
            number + shift: replace(call, sequence=number + shift)
            for number, call in calls[rank].items()
        }
        issued[rank] += shift
    return GroupView(view.name, view.ranks, calls, issued)


def _token(call: Record) -> int:
    return hash((call_of(call), call.places[:1]))

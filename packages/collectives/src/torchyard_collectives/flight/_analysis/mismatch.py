"""Ranks that came to the same collective with different calls: what kind of difference it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from torchyard_collectives.flight._analysis.findings import Finding, Kind, call_seen
from torchyard_collectives.flight._analysis.laws import Aspect, Difference, call_of, find_difference
from torchyard_collectives.flight._analysis.sources import passed_branch, separate_arms
from torchyard_collectives.flight._analysis.views import GroupView
from torchyard_collectives.flight._history import Record

__all__ = ["extra_calls", "find_mismatch", "reordered"]

_MOST_EXTRA: Final = 256
_OF_ASPECT: Final = {
    Aspect.OP: Kind.OP,
    Aspect.DTYPE: Kind.DTYPE,
    Aspect.SHAPE: Kind.SHAPE,
    Aspect.ARGUMENTS: Kind.ARGUMENTS,
}


def find_mismatch(view: GroupView) -> Finding | None:
    """Return a group's first collective on which the calls disagree, or None.

    Only the first: what comes after one is shifted against each other.
    """
    for sequence in view.sequences():
        calls = view.at(sequence)
        difference = find_difference(calls, view.ranks)
        if difference is not None:
            return _finding(view, sequence, calls, difference)
    return None


def extra_calls(longer: Sequence[Record], shorter: Sequence[Record]) -> int:
    """Return how many calls one rank made before both go on alike, by their places; 0 for none."""
    mine = [record.places for record in longer]
    theirs = [record.places for record in shorter]
    if not all(mine) or not all(theirs) or not theirs or mine[:1] == theirs[:1]:
        return 0
    if reordered(longer, shorter):
        return 0
    for count in range(1, min(len(mine), _MOST_EXTRA)):
        overlap = min(len(mine) - count, len(theirs))
        if mine[count : count + overlap] == theirs[:overlap]:
            return count
    return 0


def reordered(mine: Sequence[Record], theirs: Sequence[Record]) -> bool:
    """Whether two ranks make the same calls in another order, and then go on alike."""
    keys: tuple[Callable[[Record], object], ...] = (lambda record: record.places, call_of)
    for key in keys:
        one, other = list(map(key, mine)), list(map(key, theirs))
        overlap = min(len(one), len(other))
        for count in range(2, min(overlap, _MOST_EXTRA) + 1):
            if (
                one[:count] != other[:count]
                and one[count:overlap] == other[count:overlap]
                and Counter(one[:count]) == Counter(other[:count])
            ):
                return True
    return False


def _finding(
    view: GroupView, sequence: int, calls: Mapping[int, Record], difference: Difference
) -> Finding:
    sides: dict[str, list[int]] = {}
    for rank in sorted(calls):
        sides.setdefault(difference.values[rank], []).append(rank)
    ordered = sorted(sides.values(), key=lambda side: (-len(side), side[0]))
    majority, minority = ordered[0], sorted(rank for side in ordered[1:] for rank in side)
    leader, other = majority[0], minority[0]
    # With sides of equal size nobody is the odd one out.
    ranks = minority if len(majority) > len(minority) else sorted(calls)
    evidence = tuple(call_seen(rank, calls[rank]) for rank in sorted(calls))
    for start in dict.fromkeys([*view.partings(leader, other, sequence), sequence]):
        mine, theirs = view.following(leader, start), view.following(other, start)
        told = _branch(leader, mine, other, theirs) or _branch(other, theirs, leader, mine)
        if told is None:
            continue
        taker, text, certain = told
        # Ranks that made the same call, by the call.
        with_taker = next(side for side in ordered if taker in side)
        if 2 * len(with_taker) < len(calls):
            ranks = sorted(with_taker)
        return Finding(
            Kind.BRANCH, tuple(ranks), text, view.name, sequence, evidence, certain=certain
        )
    mine, theirs = view.following(leader, sequence), view.following(other, sequence)
    surely = reordered(mine, theirs)
    if surely or _orders(mine[0], theirs[0]) or _cut_short(mine, theirs):
        text = (
            f"ranks {_list(majority)} and {_list(minority)} make the same calls in another order: "
            f"{mine[0].describe()} comes first on {leader}, {theirs[0].describe()} on {other}"
        )
        return Finding(
            *(Kind.ORDER, tuple(ranks), text, view.name, sequence, evidence), certain=surely
        )
    return _plain(view, sequence, difference, ordered, tuple(ranks), calls)


def _plain(
    view: GroupView,
    sequence: int,
    difference: Difference,
    sides: list[list[int]],
    ranks: tuple[int, ...],
    calls: Mapping[int, Record],
) -> Finding:
    said = "; ".join(
        f"{'ranks' if len(side) > 1 else 'rank'} {_list(side)}: {difference.values[side[0]]}"
        for side in sides
    )
    evidence = tuple(call_seen(rank, calls[rank]) for rank in sorted(calls))
    notes = []
    one, other = calls[sides[0][0]], calls[sides[1][0]]
    arms = separate_arms(one.site, other.site)
    if arms is not None:
        notes.append(f"they took different arms of the `if {arms.test}` at line {arms.line}")
    if all(not call.state.outstanding and not call.error for call in calls.values()):
        notes.append("the backend completed it on every rank: its results are wrong")
    text = f"collective {sequence} of group {view.name}: {difference.aspect} differs: {said}"
    kind = _OF_ASPECT[difference.aspect]
    return Finding(kind, ranks, text, view.name, sequence, evidence, tuple(notes))


def _branch(
    rank: int, mine: Sequence[Record], other: int, theirs: Sequence[Record]
) -> tuple[int, str, bool] | None:
    """Return who took a branch that the other did not, how it is said, and whether it is sure."""
    if not mine or not theirs:
        return None
    if reordered(mine, theirs):
        return None
    count = extra_calls(mine, theirs)
    if count:
        made = ", ".join(record.describe() for record in mine[:count])
        text = f"rank {rank} made {count} more: {made}, after which both go on alike"
        branch = passed_branch(mine[0].site, theirs[0].site)
        if branch is not None:
            text += f"; it took the `if {branch.test}` at line {branch.line}"
        return rank, f"{text}; rank {other} did not", True
    if _orders(mine[0], theirs[0]):
        return None
    branch = passed_branch(mine[0].site, theirs[0].site)
    if branch is None:
        return None
    text = (
        f"rank {rank} took the `if {branch.test}` at line {branch.line} and called "
        f"{mine[0].describe()}; rank {other} went past it to {theirs[0].describe()}"
    )
    return rank, text, False


def _orders(one: Record, other: Record) -> bool:
    """Whether each rank's source says that the other's call comes next."""
    return bool(
        one.site
        and other.site
        and other.op in one.site[0].upcoming
        and one.op in other.site[0].upcoming
    )


def _cut_short(mine: Sequence[Record], theirs: Sequence[Record]) -> bool:
    """Whether one rank got no further than a call that the other makes later at the same place."""
    shorter, longer = sorted((mine, theirs), key=len)
    if len(shorter) != 1 or shorter[0].places != longer[0].places:
        return False
    return any(
        call_of(shorter[0]) == call_of(call) and shorter[0].places == call.places
        for call in longer[1:_MOST_EXTRA]
    )


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))

"""Groups that ranks made differently: torch has every rank make every group, its own or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torchyard_collectives.flight._analysis.absence import Scene
from torchyard_collectives.flight._analysis.findings import Finding, Kind
from torchyard_collectives.flight._history import Creation, EndingKind, RankHistory

__all__ = ["find_absent_creation", "find_group_difference"]

_RULE: Final = (
    "every rank has to call new_group for every group, in the same order, also for groups that it "
    "is not in; otherwise later groups have other names on this rank than on the others"
)


def find_group_difference(scene: Scene) -> list[Finding]:
    """Return the first call of new_group in which ranks make different groups, if there is one."""
    for name, calls in _calls(scene).items():
        sides: dict[tuple[int, ...], list[int]] = {}
        for rank, call in sorted(calls.items()):
            sides.setdefault(call.ranks, []).append(rank)
        if len(sides) == 1:
            continue
        sizes = sorted(map(len, sides.values()))
        most = sizes[-1]
        # Of sides of equal size nobody can say which is right.
        blamed = [
            rank
            for ranks in sides.values()
            if len(ranks) < most or sizes.count(most) > 1
            for rank in ranks
        ]
        made = [
            f"{_who(ranks)} made one of {_who(group)}{_at(calls[ranks[0]])}"
            for group, ranks in sides.items()
        ]
        text = f"new_group call {name} differs: {'; '.join(made)}"
        return [Finding(Kind.GROUPS, tuple(sorted(blamed)), text, name, notes=(_RULE,))]
    return []


def find_absent_creation(scene: Scene) -> list[Finding]:
    """Return the ranks that did not come to the first call of new_group that others made."""
    for name, calls in _calls(scene).items():
        found = [
            finding
            for rank, history in sorted(scene.histories.items())
            if _has_fewer(history, name)
            and (finding := _judge(rank, history, name, calls, scene)) is not None
        ]
        if found:
            return found
    return []


def _calls(scene: Scene) -> dict[str, dict[int, Creation]]:
    """Return the calls of every number by rank, in their order."""
    found: dict[str, dict[int, Creation]] = {}
    for rank, history in scene.histories.items():
        for call in history.creations or ():
            found.setdefault(call.name, {})[rank] = call
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def _has_fewer(history: RankHistory, name: str) -> bool:
    creations = history.creations
    return creations is not None and all(call.number < int(name) for call in creations)


def _judge(
    rank: int, history: RankHistory, name: str, calls: Mapping[int, Creation], scene: Scene
) -> Finding | None:
    first = calls[min(calls)]
    waiting = [other for other, call in sorted(calls.items()) if _waits(other, call, scene)]
    what = f"new_group call {name}, for {_who(first.ranks)}{_at(first)}"
    where = f"{what}, where {_who(waiting)} wait" if waiting else f"{what}, as {_who(calls)} did"
    ending = history.ending
    if ending.kind is EndingKind.EXIT:
        text = f"rank {rank} ended its program normally without {where}"
        return Finding(Kind.GROUPS, (rank,), text, name, notes=(_RULE,))
    if not waiting:
        # It is elsewhere, and nobody needs it for a group that it may still make.
        return None
    if ending.kind is EndingKind.RUNNING:
        at = f"; it is at {history.stack[0]}" if history.stack else ""
        text = f"rank {rank} has not come to {where}{at}"
        return Finding(Kind.NOT_ENTERED, (rank,), text, name, notes=(_RULE,))
    text = f"rank {rank} ended with {ending.text} before {where}"
    return Finding(Kind.CRASH, (rank,), text, name)


def _waits(rank: int, call: Creation, scene: Scene) -> bool:
    """Whether a rank has waited in a call for as long as is a fault, or has ended in it."""
    history = scene.histories[rank]
    if call.over or history.dumped is None:
        return False
    ended = history.ending.kind is not EndingKind.RUNNING
    return ended or history.dumped - call.entered >= scene.patience


def _who(ranks: Mapping[int, Creation] | tuple[int, ...] | list[int]) -> str:
    listed = ", ".join(map(str, sorted(ranks)))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _at(call: Creation) -> str:
    return f" at {call.site[0]}" if call.site else ""

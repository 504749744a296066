"""Sends and receives: which belong together, which disagree, which wait for nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from torchyard_collectives.flight._analysis.absence import Scene, Wait
from torchyard_collectives.flight._analysis.findings import Finding, Kind, call_seen
from torchyard_collectives.flight._analysis.laws import Aspect, find_p2p_difference
from torchyard_collectives.flight._history import Record, State

__all__ = ["find_p2p_mismatches", "find_p2p_waits"]

_KINDS: Final = {Aspect.DTYPE: Kind.DTYPE, Aspect.SHAPE: Kind.SHAPE}


class _Lane(NamedTuple):
    """What keeps messages apart."""

    group: str
    source: int
    target: int
    tag: int


_Lanes = Mapping[_Lane, Mapping[int, Record]]


def find_p2p_mismatches(scene: Scene) -> list[Finding]:
    """Return the first pair of each lane whose tags, sizes or dtypes disagree."""
    sends, receives = _lanes(scene, "send"), _lanes(scene, "recv")
    found = [*_other_tags(sends, receives)]
    for lane in sorted(sends.keys() & receives.keys()):
        for number in sorted(sends[lane].keys() & receives[lane].keys()):
            send, recv = sends[lane][number], receives[lane][number]
            difference = find_p2p_difference(send, recv, lane.source, lane.target)
            if difference is None:
                continue
            text = (
                f"message {number} from rank {lane.source} to rank {lane.target}: "
                f"{difference.aspect} differs: it sends {difference.values[lane.source]}, which is "
                f"taken as {difference.values[lane.target]}"
            )
            calls = (call_seen(lane.source, send), call_seen(lane.target, recv))
            ranks = tuple(sorted({lane.source, lane.target}))
            found.append(Finding(_KINDS[difference.aspect], ranks, text, lane.group, number, calls))
            break
    return found


def _other_tags(sends: _Lanes, receives: _Lanes) -> Iterator[Finding]:
    """Yield receives that wait while the rank that they wait for has sent with another tag."""
    for lane, calls in sorted(receives.items()):
        sent = sends.get(lane, {})
        waiting = [n for n, call in calls.items() if _waits(call) and n not in sent]
        others = [
            (other, number)
            for other, messages in sorted(sends.items())
            if other.tag != lane.tag and other[:3] == lane[:3]
            for number in sorted(messages)
            if number not in receives.get(other, {})
        ]
        if not waiting or not others:
            continue
        other, sequence = others[0]
        number = min(waiting)
        send, recv = sends[other][sequence], calls[number]
        at = [f" at {call.site[0]}" if call.site else "" for call in (send, recv)]
        text = (
            f"tag differs: rank {lane.source} sends to rank {lane.target} with tag {other.tag}"
            f"{at[0]}, and rank {lane.target} waits for tag {lane.tag}{at[1]}"
        )
        seen = (call_seen(lane.source, send), call_seen(lane.target, recv))
        ranks = tuple(sorted({lane.source, lane.target}))
        yield Finding(Kind.ARGUMENTS, ranks, text, lane.group, number, seen)


def _waits(call: Record) -> bool:
    return call.state.outstanding or call.state is State.FAILED


def find_p2p_waits(scene: Scene) -> list[Wait]:
    """Return the first send or receive of each lane that is not over and has no other side."""
    sends, receives = _lanes(scene, "send"), _lanes(scene, "recv")
    return [*_unanswered(sends, receives, scene, 1), *_unanswered(receives, sends, scene, 0)]


def _unanswered(waiting: _Lanes, answering: _Lanes, scene: Scene, other_end: int) -> Iterator[Wait]:
    for lane, calls in sorted(waiting.items()):
        ends = (lane.source, lane.target)
        peer, own = ends[other_end], ends[1 - other_end]
        answers = answering.get(lane, {})
        history = scene.histories.get(peer)
        for number, call in sorted(calls.items()):
            if call.state is State.COMPLETED or number in answers:
                continue
            # A ring that has lost records may have lost the answer.
            if history is not None and history.dropped and not (answers and max(answers) < number):
                continue
            dumped = scene.histories[own].dumped
            if (
                call.state.outstanding
                and dumped is not None
                and dumped - call.entered < scene.patience
            ):
                continue
            yield Wait(lane.group, number, {own: call}, (peer,))
            break


def _lanes(scene: Scene, op: str) -> dict[_Lane, dict[int, Record]]:
    lanes: dict[_Lane, dict[int, Record]] = {}
    for rank, history in scene.histories.items():
        for record in history.records:
            # What comes from anyone has no other end that could be looked for.
            if record.op != op or record.peer is None or record.peer < 0:
                continue
            source, target = (rank, record.peer) if op == "send" else (record.peer, rank)
            lane = _Lane(record.group, source, target, record.tag)
            lanes.setdefault(lane, {})[record.sequence] = record
    return lanes

"""Ranks that come late: once by a lot, or again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Final

from torchyard_collectives.flight._analysis.absence import Scene
from torchyard_collectives.flight._analysis.findings import Finding, Kind, call_seen
from torchyard_collectives.flight._analysis.views import GroupView
from torchyard_collectives.flight._history import State

__all__ = ["find_stragglers"]

_SHARE: Final = 0.25
_FEWEST: Final = 8
_SECOND: Final = 1e9


def find_stragglers(views: Sequence[GroupView], scene: Scene, threshold: int) -> list[Finding]:
    """Return who made others wait.

    A rank's lateness at a collective is how much later it entered than the median of the other
    ranks. It is a straggler when it was once late by the threshold, or when others spent a quarter
    of the recorded time waiting for it, over at least eight collectives.

    Args:
        views: the groups.
        scene: the histories and their common clock.
        threshold: nanoseconds.
    """
    found: list[Finding] = []
    for view in views:
        found += _once(view, scene, threshold) or _often(view, scene, threshold)
    return found


def _lateness(view: GroupView, sequence: int, scene: Scene) -> tuple[int, int] | None:
    """Return the last rank to enter a collective and its lateness, if all ranks entered."""
    calls = view.at(sequence)
    if len(calls) < len(view.ranks) or any(c.state is State.FAILED for c in calls.values()):
        return None
    times = {rank: scene.clocks.time(rank, call.entered) for rank, call in calls.items()}
    last = max(times, key=lambda rank: times[rank])
    others = median(time for rank, time in times.items() if rank != last)
    return last, int(times[last] - others)


def _surely(scene: Scene, lateness: int) -> bool:
    """Whether a lateness is more than the doubt about the clocks, on more than one host."""
    hosts = {history.host for history in scene.histories.values()}
    return len(hosts) < 2 or lateness > (scene.clocks.uncertain or 0)


def _once(view: GroupView, scene: Scene, threshold: int) -> list[Finding]:
    latest: tuple[int, int, int] | None = None
    for sequence in view.sequences():
        late = _lateness(view, sequence, scene)
        if late is not None and (latest is None or late[1] > latest[1]):
            latest = (*late, sequence)
    if latest is None or latest[1] < threshold or not _surely(scene, latest[1]):
        return []
    rank, lateness, sequence = latest
    calls = view.at(sequence)
    before = view.calls[rank].get(sequence - 1)
    notes = []
    if before is not None and before.site:
        notes.append(f"before, it was at {before.site[0]}: look between there and the call")
    text = (
        f"rank {rank} came {lateness / _SECOND:.2f} s after the others to "
        f"{calls[rank].describe()}, call {sequence} of group {view.name}"
    )
    evidence = tuple(call_seen(one, calls[one]) for one in sorted(calls))
    return [Finding(Kind.STRAGGLER, (rank,), text, view.name, sequence, evidence, tuple(notes))]


def _often(view: GroupView, scene: Scene, threshold: int) -> list[Finding]:
    waited: Counter[int] = Counter()
    times: list[int] = []
    for sequence in view.sequences():
        late = _lateness(view, sequence, scene)
        if late is not None:
            waited[late[0]] += late[1]
            rank, call = next(iter(view.at(sequence).items()))
            times.append(scene.clocks.time(rank, call.entered))
    if len(times) < _FEWEST:
        return []
    span = max(times) - min(times)
    rank, total = waited.most_common(1)[0]
    # A tenth of a second in all, so that the noise of a short run is no fault.
    if total < max(_SHARE * span, threshold / 10) or not _surely(scene, total // len(times)):
        return []
    text = (
        f"others waited {total / _SECOND:.2f} s for rank {rank} over {len(times)} collectives of "
        f"group {view.name}, {total / span:.0%} of the time"
    )
    return [Finding(Kind.STRAGGLER, (rank,), text, view.name)]

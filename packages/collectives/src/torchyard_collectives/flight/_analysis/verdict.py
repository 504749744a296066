"""The verdict on the histories of all ranks; the fault that explains the others comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchyard import arguments
from torchyard_collectives.flight._analysis.absence import Scene, Wait, find_wait, judge_absence
from torchyard_collectives.flight._analysis.clocks import align_clocks
from torchyard_collectives.flight._analysis.consequences import (
    with_failed_calls,
    without_orders_to_end,
)
from torchyard_collectives.flight._analysis.findings import Finding, Kind, Outcome, Report
from torchyard_collectives.flight._analysis.groups import (
    find_absent_creation,
    find_group_difference,
)
from torchyard_collectives.flight._analysis.mismatch import find_mismatch
from torchyard_collectives.flight._analysis.p2p import find_p2p_mismatches, find_p2p_waits
from torchyard_collectives.flight._analysis.stragglers import find_stragglers
from torchyard_collectives.flight._analysis.views import GroupView, group_views
from torchyard_collectives.flight._history import EndingKind, RankHistory

__all__ = ["analyse"]

_SECOND = 1_000_000_000
_MOST_RANKS = 1 << 24


def analyse(
    histories: Sequence[RankHistory],
    *,
    world_size: int | None = None,
    gone: Mapping[int, str] | None = None,
    problems: Sequence[str] = (),
    damaged: Mapping[int, str] | None = None,
    patience: float = 1.0,
    straggler: float = 1.0,
) -> Report:
    """Return what went wrong, if anything did.

    Args:
        histories: one per rank; the job's ranks that are missing are found by the world size.
        world_size: of the job; by default the largest that a history names.
        gone: ranks without a dump whose process is known to have ended, with the evidence.
        problems: what could not be read.
        damaged: ranks whose dump could not be read, with the reason.
        patience: seconds that a rank may wait in a call before that is a fault, where its dump was
            written while it ran.
        straggler: seconds that a rank may come after the others.
    """
    of = "analyse"
    histories = arguments.sequence(of, "histories", histories, _history)
    if world_size is not None:
        world_size = arguments.integer(of, "world_size", world_size, least=1, most=_MOST_RANKS)
    gone = _evidence("gone", gone)
    damaged = _evidence("damaged", damaged)
    problems = arguments.sequence(of, "problems", problems, arguments.text)
    patience = arguments.number(of, "patience", patience, least=0)
    straggler = arguments.number(of, "straggler", straggler, least=0)
    by_rank = with_failed_calls({history.rank: history for history in histories})
    size = world_size or max((history.world_size for history in histories), default=0)
    without = tuple(rank for rank in range(size) if rank not in by_rank)
    clocks = align_clocks(by_rank)
    unread = {rank: text for rank, text in damaged.items() if rank in without}
    limit = int(patience * _SECOND)
    told = without_orders_to_end(by_rank, gone, clocks, limit)
    scene = Scene(told, gone, clocks, limit, unread)
    views = group_views(by_rank)
    notes = list(problems)
    absent = [rank for rank in without if rank not in unread]
    if absent:
        notes.append(f"no dump of rank {', '.join(map(str, absent))}")
    for rank, moved in clocks.corrected.items():
        notes.append(f"the wall clock of rank {rank} is {-moved / _SECOND:+.3f} s off")
    notes += _unseen(views)
    # Groups that ranks made differently have names that mean different ranks from there on.
    findings = find_group_difference(scene) + _faults(views, scene)
    if not findings:
        findings = find_absent_creation(scene) or _endings(scene)
    if not findings:
        findings = find_stragglers(views, scene, int(straggler * _SECOND))
    outcome = Outcome.FAULT if findings else Outcome.HEALTHY
    if not findings and (without or not by_rank or problems):
        outcome = Outcome.INCONCLUSIVE
    return Report(outcome, tuple(findings), by_rank, without, clocks, tuple(notes))


def _history(of: str, name: str, value: object) -> RankHistory:
    return arguments.instance(of, name, value, RankHistory)


def _evidence(name: str, given: object) -> dict[int, str]:
    """Return the text about some ranks, by rank."""
    if given is None:
        return {}
    of = "analyse"
    told = arguments.mapping(of, name, given, "a mapping from ranks to texts")
    return {
        arguments.integer(of, name, rank): arguments.text(of, f"{name}[{rank}]", text)
        for rank, text in told.items()
    }


def _faults(views: Sequence[GroupView], scene: Scene) -> list[Finding]:
    mismatches = [found for view in views if (found := find_mismatch(view)) is not None]
    mismatches += find_p2p_mismatches(scene)
    waits = [wait for view in views if (wait := find_wait(view, scene)) is not None]
    waits += find_p2p_waits(scene)
    # A wait at or after a group's mismatch follows from it.
    broken = {found.group: found.sequence or 0 for found in mismatches}
    waits = [
        wait
        for wait in waits
        if wait.group not in broken
        or (wait.view is not None and wait.sequence < broken[wait.group])
    ]
    roots, cycle = _roots(waits, scene)
    findings: list[Finding] = []
    if cycle:
        findings.append(cycle)
    for wait in roots:
        findings += judge_absence(wait, scene)
    seen: set[tuple[Kind, tuple[int, ...]]] = set()
    unique = []
    for found in [*sorted(mismatches, key=lambda one: _time(one, scene)), *_ranked(findings)]:
        if (found.kind, found.ranks) not in seen:
            seen.add((found.kind, found.ranks))
            unique.append(found)
    return unique


def _ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Sort waits by what explains most: a death, then a path, then an absence."""
    order = [
        *(Kind.ORDER, Kind.CRASH, Kind.BRANCH, Kind.MISSING_RANK, Kind.NOT_ENTERED),
        *(Kind.STRAGGLER, Kind.DAMAGED, Kind.BACKEND),
    ]
    return sorted(findings, key=lambda found: order.index(found.kind))


def _time(found: Finding, scene: Scene) -> int:
    """Return when the first rank entered a finding's call."""
    times = [
        scene.clocks.time(rank, record.entered)
        for rank, history in scene.histories.items()
        for record in history.records
        if record.group == found.group and record.sequence == found.sequence
    ]
    return min(times, default=0)


def _roots(waits: Sequence[Wait], scene: Scene) -> tuple[list[Wait], Finding | None]:
    """Return the waits for ranks that wait for nobody; a finding where they wait in a circle."""
    waited_on: dict[int, set[int]] = {}
    for wait in waits:
        for rank, call in wait.waiting.items():
            if call.state.outstanding or call.error:
                waited_on.setdefault(rank, set()).update(set(wait.absent) - {rank})
    roots = []
    for wait in waits:
        free = tuple(rank for rank in wait.absent if rank not in waited_on)
        if free or not wait.absent:
            roots.append(replace(wait, absent=free))
    if roots or not waits:
        return roots, None
    circle = _circle(waited_on)
    steps = []
    for rank, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        wait = next(w for w in waits if rank in w.waiting and following in w.absent)
        steps.append(
            f"rank {rank} waits for {following} in {wait.waiting[rank].describe()}, call "
            f"{wait.sequence} of group {wait.group}"
        )
    evidence = tuple(call for wait in waits for call in judge_absence(wait, scene)[0].calls)
    text = f"ranks wait for one another in a circle: {'; '.join(steps)}"
    return [], Finding(Kind.ORDER, tuple(sorted(circle)), text, waits[0].group, None, evidence)


def _circle(edges: Mapping[int, set[int]]) -> list[int]:
    """Return a cycle of a graph in which every node has a successor."""
    path: list[int] = []
    node = min(edges)
    while node not in path:
        path.append(node)
        node = min(edges[node] & edges.keys())
    return path[path.index(node) :]


def _endings(scene: Scene) -> list[Finding]:
    """Return crashes that nobody waited for."""
    found = []
    for rank, history in sorted(scene.histories.items()):
        if history.ending.kind in (EndingKind.EXCEPTION, EndingKind.SIGNAL, EndingKind.GONE):
            where = f" at {history.ending.site[0]}" if history.ending.site else ""
            text = f"rank {rank} ended with {history.ending.text}{where}"
            found.append(Finding(Kind.CRASH, (rank,), text))
    for rank, evidence in sorted(scene.gone.items()):
        if rank not in scene.histories:
            found.append(Finding(Kind.CRASH, (rank,), f"rank {rank} died: {evidence}"))
    return found


def _unseen(views: Sequence[GroupView]) -> list[str]:
    """Say where rings have lost what would have to be compared."""
    notes = []
    for view in views:
        kept = {rank: (min(calls) if calls else None) for rank, calls in view.calls.items()}
        firsts = [first for first in kept.values() if first is not None]
        if firsts and max(firsts) > min(firsts, default=0):
            notes.append(
                f"group {view.name}: rings reach back to different calls; only from call "
                f"{max(firsts)} on can all ranks be compared"
            )
        ends = [issued for rank, issued in view.issued.items() if view.calls[rank]]
        if firsts and ends and max(firsts) >= min(ends):
            notes.append(
                f"group {view.name}: no call is known of all ranks: the ring of one has lost what "
                f"another still waits in; keep more records"
            )
    return notes

"""Ranks that others wait for: who has not come to a collective, and what kept them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from torchyard_collectives.flight._analysis.clocks import ALL_WAIT, Clocks
from torchyard_collectives.flight._analysis.findings import CallSeen, Finding, Kind, call_seen
from torchyard_collectives.flight._analysis.mismatch import extra_calls
from torchyard_collectives.flight._analysis.sources import mentions_rank, passed_branch
from torchyard_collectives.flight._analysis.views import GroupView
from torchyard_collectives.flight._history import NO_DUMP, EndingKind, RankHistory, Record, State

__all__ = ["Scene", "Wait", "find_wait", "judge_absence"]


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known besides the records.

    Attributes:
        histories: by rank.
        gone: ranks without a dump whose process is known to have ended, and how that is known.
        clocks: the common clock.
        patience: nanoseconds that a rank may wait before that is a fault.
        damaged: ranks whose dump could not be read, with the reason.
    """

    histories: Mapping[int, RankHistory]
    gone: Mapping[int, str]
    clocks: Clocks
    patience: int
    damaged: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Some ranks wait in a call for others.

    Attributes:
        group: the group's name.
        sequence: the call's number.
        waiting: the calls of the ranks that wait, by rank.
        absent: the ranks that have not come; empty where all have.
        view: the group's collectives; None for a send or receive.
    """

    group: str
    sequence: int
    waiting: Mapping[int, Record]
    absent: tuple[int, ...]
    view: GroupView | None = None


def find_wait(view: GroupView, scene: Scene) -> Wait | None:
    """Return a group's first collective that is not over although it should be, or None."""
    for sequence in view.sequences():
        lagging = any(issued <= sequence for issued in view.issued.values())
        calls = {rank: _believed(call, lagging) for rank, call in view.at(sequence).items()}
        over = any(call.state is State.COMPLETED for call in calls.values())
        waiting = {
            rank: call
            for rank, call in calls.items()
            # A journal does not say that the last calls of its process were over.
            if call.state is not State.COMPLETED
            and not (over and scene.histories[rank].dumped is None)
            and not _was_about_to_end(rank, calls, scene)
        }
        if not waiting:
            continue
        absent = tuple(
            rank
            for rank, issued in view.issued.items()
            if issued <= sequence and _has_seen(rank, waiting, scene)
        )
        if not _patient(waiting, absent, scene) or (lagging and not absent):
            continue
        return Wait(view.name, sequence, waiting, absent or view.silent, view)
    return None


def judge_absence(wait: Wait, scene: Scene) -> list[Finding]:
    """Return what is wrong with each rank that a wait waits for."""
    if not wait.absent:
        return [_stuck(wait, scene)]
    return [_judge(rank, wait, scene) for rank in wait.absent]


def _was_about_to_end(rank: int, calls: Mapping[int, Record], scene: Scene) -> bool:
    """Whether a rank's dump was written around when others came out of its call: too early."""
    dumped = scene.histories[rank].dumped
    if dumped is None or calls[rank].op not in ALL_WAIT or calls[rank].state is State.FAILED:
        return False
    seen = scene.clocks.time(rank, dumped)
    return any(
        call.completed is not None
        and seen - scene.clocks.time(other, call.completed) < scene.patience
        for other, call in calls.items()
        if call.state is State.COMPLETED
    )


def _believed(call: Record, lagging: bool) -> Record:
    """Return a call as it can have been: none that all wait in ends before all have come.

    torch's recorder counts a call of gloo that failed as one that completed, and has no time of it.
    """
    if lagging and call.completed is None and call.op in ALL_WAIT:
        return replace(call, state=State.STARTED)
    return call


def _has_seen(rank: int, waiting: Mapping[int, Record], scene: Scene) -> bool:
    """Whether a rank's dump is late enough to show that it is absent."""
    history = scene.histories[rank]
    if history.dumped is None or history.ending.kind is not EndingKind.RUNNING:
        return True
    seen = scene.clocks.time(rank, history.dumped)
    return any(scene.clocks.time(other, call.entered) <= seen for other, call in waiting.items())


def _patient(waiting: Mapping[int, Record], absent: Sequence[int], scene: Scene) -> bool:
    """Whether ranks have waited long enough, or for somebody who cannot come any more."""
    if any(scene.histories[rank].ending.kind is not EndingKind.RUNNING for rank in absent):
        return True
    for rank, call in waiting.items():
        dumped = scene.histories[rank].dumped
        if call.state is State.FAILED or dumped is None:
            return True
        if scene.histories[rank].ending.kind is not EndingKind.RUNNING:
            return True
        if dumped - call.entered >= scene.patience:
            return True
    return False


def _evidence(wait: Wait) -> tuple[CallSeen, ...]:
    return tuple(call_seen(rank, call) for rank, call in sorted(wait.waiting.items()))


def _finding(
    kind: Kind, rank: int, text: str, wait: Wait, notes: Sequence[str] = (), certain: bool = True
) -> Finding:
    calls = _evidence(wait)
    return Finding(kind, (rank,), text, wait.group, wait.sequence, calls, tuple(notes), certain)


def _what(wait: Wait) -> str:
    call = wait.waiting[min(wait.waiting)]
    ranks = ", ".join(map(str, sorted(wait.waiting)))
    who = f"rank {ranks} waits" if len(wait.waiting) == 1 else f"ranks {ranks} wait"
    return f"{call.describe()}, call {wait.sequence} of group {wait.group}, where {who}"


def _judge(rank: int, wait: Wait, scene: Scene) -> Finding:
    history = scene.histories.get(rank)
    if history is None:
        if rank in scene.damaged:
            text = f"rank {rank}'s dump is damaged, so nothing says why it is not in {_what(wait)}"
            notes = (scene.damaged[rank],)
            return _finding(Kind.DAMAGED, rank, text, wait, notes, certain=False)
        if rank in scene.gone:
            text = f"rank {rank} died before {_what(wait)}: {scene.gone[rank]}"
            return _finding(Kind.CRASH, rank, text, wait)
        lost = [call.error for call in wait.waiting.values() if _speaks_of_loss(call.error)]
        if lost:
            text = f"rank {rank} died before {_what(wait)}: it left no dump, and its peers lost it"
            return _finding(Kind.CRASH, rank, text, wait, (lost[0],), certain=False)
        text = f"rank {rank} left no dump and is missing in {_what(wait)}"
        notes = ("it may have died, hang with the GIL held, or never have started",)
        return _finding(Kind.MISSING_RANK, rank, text, wait, notes)
    ending = history.ending
    if ending.kind in (EndingKind.EXCEPTION, EndingKind.SIGNAL, EndingKind.GONE):
        where = f" at {ending.site[0]}" if ending.site else ""
        text = f"rank {rank} ended with {ending.text}{where} before {_what(wait)}"
        return _finding(Kind.CRASH, rank, text, wait)
    branch = _branch(rank, history, wait)
    if branch is not None:
        return branch
    if ending.kind is EndingKind.EXIT:
        text = f"rank {rank} ended its program normally without {_what(wait)}"
        return _finding(Kind.MISSING_RANK, rank, text, wait, _last(rank, history))
    where = f"; it is at {history.stack[0]}" if history.stack else ""
    text = f"rank {rank} has not come to {_what(wait)}{where}"
    seen: tuple[str, ...] = _last(rank, history)
    if history.reason == NO_DUMP:
        seen = (*seen, "it runs and wrote no dump: it hangs where Python cannot, the GIL held")
    return _finding(Kind.NOT_ENTERED, rank, text, wait, seen)


def _branch(rank: int, history: RankHistory, wait: Wait) -> Finding | None:
    """Return the branch that the waiting ranks took and an absent one did not, if that is it."""
    view = wait.view
    if view is not None and rank in view.calls:
        for other in sorted(wait.waiting):
            for start in view.partings(other, rank, wait.sequence):
                mine, theirs = view.following(other, start), view.following(rank, start)
                count = extra_calls(mine, theirs)
                if not count:
                    continue
                made = ", ".join(f"{call.describe()}" for call in mine[:count])
                where = f" at {mine[0].site[0]}" if mine[0].site else ""
                text = (
                    f"rank {other} made {count} more: {made}{where}, after which both go on alike; "
                    f"so rank {rank} never comes to {_what(wait)}"
                )
                at = view.at(start)
                took = {one for one, call in at.items() if call.places == mine[0].places}
                left = at.keys() - took
                ranks = tuple(sorted(min((took, left), key=len) if len(took) != len(left) else at))
                calls = tuple(call_seen(other, call) for call in mine[:count])
                return Finding(
                    Kind.BRANCH, ranks, text, wait.group, wait.sequence, calls + _evidence(wait)
                )
    return _passed(rank, history, wait)


def _passed(rank: int, history: RankHistory, wait: Wait) -> Finding | None:
    """Judge by the source: the wait is inside an ``if`` that the absent rank has left behind."""
    waiting = wait.waiting[min(wait.waiting)]
    if not waiting.site:
        return None
    been = any(call.places == waiting.places for call in history.records)
    if history.ending.kind is EndingKind.EXIT:
        last = history.records[-1].site if history.records else ()
        branch = passed_branch(waiting.site, last) or next(iter(waiting.site[0].branches), None)
    else:
        branch = passed_branch(waiting.site, history.stack)
    if branch is None or been or mentions_rank(branch):
        return None
    text = (
        f"rank {min(wait.waiting)} took the `if {branch.test}` at line {branch.line} and waits in "
        f"{waiting.describe()}, call {wait.sequence} of group {wait.group}; rank {rank} went past"
    )
    return _finding(Kind.BRANCH, rank, text, wait, _last(rank, history), certain=False)


def _last(rank: int, history: RankHistory) -> tuple[str, ...]:
    if not history.records:
        return (f"rank {rank} has made no call that is still kept",)
    call = history.records[-1]
    where = f" at {call.site[0]}" if call.site else ""
    return (f"its last call was {call.describe()}{where}, {call.state}",)


def _speaks_of_loss(error: str) -> bool:
    """Whether an error of a backend says that the other end is gone.

    The words are the operating system's and gloo's, and those of any backend that says it plainly.
    """
    words = ("connection closed", "connection reset", "broken pipe", "died", "connection refused")
    return any(word in error.lower() for word in words)


def _stuck(wait: Wait, scene: Scene) -> Finding:
    """Judge a call to which everybody came and which did not end well."""
    for rank in sorted(wait.waiting):
        ending = scene.histories[rank].ending
        if ending.kind in (EndingKind.SIGNAL, EndingKind.GONE):
            text = f"rank {rank} ended with {ending.text} in {_what(wait)}"
            return _finding(Kind.CRASH, rank, text, wait)
    calls = wait.view.at(wait.sequence) if wait.view is not None else wait.waiting
    times = {rank: scene.clocks.time(rank, call.entered) for rank, call in calls.items()}
    last = max(times, key=lambda rank: times[rank])
    late = times[last] - median(time for rank, time in times.items() if rank != last)
    if late >= scene.patience > 0:
        text = f"rank {last} came {late / 1e9:.2f} s after the others to {_what(wait)}: too late"
        return _finding(Kind.STRAGGLER, last, text, wait)
    ranks = tuple(sorted(wait.waiting))
    errors = sorted({call.error for call in wait.waiting.values() if call.error})
    text = (
        f"every rank has come to {_what(wait)}, with calls that agree, and it does not end: look "
        f"at the network and the devices, not at the program"
    )
    return Finding(
        *(Kind.BACKEND, ranks, text, wait.group, wait.sequence, _evidence(wait), tuple(errors))
    )

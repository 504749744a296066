"""The ring: what a rank's collectives were, written while they run.

``begin`` and ``end`` are on the way of every collective, so they only copy: shapes, code objects
and the backend's handle. All that takes longer (lines, source, names of dtypes) is done for a dump.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from torchyard_collectives._torch_compat import group_name, reduce_op
from torchyard_collectives.flight._dump.journal import Journal
from torchyard_collectives.flight._history import (
    Ending,
    RankHistory,
    State,
)
from torchyard_collectives.flight._record.calls import Layout
from torchyard_collectives.flight._record.creations import Creations
from torchyard_collectives.flight._record.entry import (
    Entry,
    Log,
    group_of,
    record_of,
    word,
)
from torchyard_collectives.flight._record.sites import (
    capture,
    is_in_torch_distributed,
    plain_frames,
    stack_of,
)

__all__ = ["Recorder"]


_LETTERS: Final = {state: ord(state[0]) for state in State}


class Recorder:
    """A bounded ring of this process's collectives.

    Args:
        capacity: how many calls are kept.
        folder: where the journal goes.
    """

    def __init__(self, capacity: int, folder: Path) -> None:
        self._capacity, self._folder = capacity, folder
        self._journal: Journal | None = None
        self._ring: deque[Entry] = deque(maxlen=capacity)
        self._pending: deque[Entry] = deque()
        self._logs: dict[int, tuple[dist.ProcessGroup, Log]] = {}
        self._lock = threading.RLock()
        self._recorded = 0
        self._late: set[str] = set()
        self.rank = -1
        self.world_size = 0
        self.creations: Creations | None = None

    def begin(self, group: dist.ProcessGroup, layout: Layout, arguments: Sequence[Any]) -> Entry:
        """Write down that a call begins."""
        entry = Entry()
        entry.layout = layout
        entry.site = capture(sys._getframe(2))
        entry.inputs = _shapes(arguments, layout.inputs)
        entry.outputs = _shapes(arguments, layout.outputs)
        entry.arguments = _options(arguments, layout)
        entry.peer = None
        entry.tag = 0
        entry.started = entry.completed = None
        entry.state = State.ENTERED
        entry.error = ""
        entry.work = None
        entry.reported = False
        entry.thread = threading.get_ident()
        # torch's async_op, which is passed only where it is False: the caller waits at once.
        entry.waits = any(argument is False for argument in arguments[-2:])
        known = self._logs.get(id(group))
        log = known[1] if known is not None else self._known(group)
        entry.group = log
        with self._lock:
            pending = self._pending
            while pending and pending[0].work is not None:
                first = pending[0]
                if not self._settle(first):
                    # Who makes the next call has come back from the one that it waited for.
                    if not first.waits or first.thread != entry.thread:
                        break
                    self._close(first, State.COMPLETED)
                pending.popleft()
            if layout.is_p2p:
                self._number_message(entry, layout, arguments)
            else:
                entry.sequence = log.issued
                log.issued += 1
            self._ring.append(entry)
            pending.append(entry)
            self._recorded += 1
            entry.entered = time.monotonic_ns()
            entry.place = -1
            if self._journal is not None:
                self._note(self._journal, entry)
        return entry

    def end(self, entry: Entry, work: Any) -> None:
        """Write down that the backend has a call, and its handle; None where there is none."""
        entry.started = time.monotonic_ns()
        entry.state = State.STARTED
        if work is None:
            self._close(entry, State.COMPLETED)
            self._forget(entry)
            return
        entry.work = work
        if entry.place >= 0 and self._journal is not None:
            self._journal.mark(entry.place, _LETTERS[State.STARTED])

    def fail(self, entry: Entry, error: BaseException) -> None:
        """Write down that a call raised."""
        entry.error = str(error)[:1000] or type(error).__name__
        self._close(entry, State.FAILED)
        self._forget(entry)

    def sweep(self) -> list[Entry]:
        """Look which calls are over; return those that are not."""
        with self._lock:
            still = [
                entry for entry in self._pending if entry.work is None or not self._settle(entry)
            ]
            blind = [entry for entry in still if entry.work is not None and _is_blind(entry.work)]
            for entry in blind:
                if self._is_past(entry):
                    self._close(entry, State.COMPLETED)
                    still.remove(entry)
            self._pending = deque(still)
        # Of a handle that never says when it is over nobody knows how long it has taken.
        return [entry for entry in still if entry not in blind]

    def _is_past(self, entry: Entry) -> bool:
        """Whether a call whose handle cannot say so is over."""
        if entry.waits:
            frame = sys._current_frames().get(entry.thread)
            return not is_in_torch_distributed(frame)
        return any(
            later.state is State.COMPLETED
            and later.group is entry.group
            and not later.layout.is_p2p
            and later.sequence > entry.sequence
            for later in self._ring
        )

    def failures(self) -> list[Entry]:
        """Return the calls that failed and were not reported."""
        with self._lock:
            return [e for e in self._ring if e.state is State.FAILED and not e.reported]

    def mark_late(self, groups: Sequence[dist.ProcessGroup]) -> None:
        """Note groups that were there before the recorder, so that its numbers mean little."""
        self._late = set(map(group_name, groups))

    def history(self, reason: str, ending: Ending) -> RankHistory:
        """Return everything that is known, for a dump."""
        self.sweep()
        with self._lock:
            entries = list(self._ring)
            logs = [log for _, log in self._logs.values()]
            dropped = self._recorded - len(entries)
        return RankHistory(
            rank=self.rank,
            world_size=max(self.world_size, self.rank + 1),
            groups={log.name: group_of(log) for log in logs},
            records=tuple(map(record_of, entries)),
            host=socket.gethostname(),
            pid=os.getpid(),
            reason=reason,
            wall_minus_monotonic=time.time_ns() - time.monotonic_ns(),
            dumped=time.monotonic_ns(),
            dropped=dropped,
            stack=stack_of(threading.main_thread().ident),
            ending=ending,
            creations=self.creations.seen() if self.creations is not None else None,
        )

    def close(self, *, remove: bool) -> None:
        """Close the journal; remove it where a dump says all that it says."""
        with self._lock:
            if self._journal is not None:
                self._journal.close(remove=remove)
            self._journal = None

    def _known(self, group: dist.ProcessGroup) -> Log:
        name = group_name(group) or f"unnamed {len(self._logs)}"
        log = Log(group, name, name not in self._late)
        with self._lock:
            if dist.is_initialized():
                self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
                if self._journal is None:
                    self._open_journal()
            if self._journal is not None:
                self._journal.group(
                    {
                        "name": log.name,
                        "ranks": log.ranks,
                        "description": log.description,
                        "backend": log.backend,
                        "numbered": log.numbered,
                    }
                )
            # The group is kept, so that no other gets its identity.
            return self._logs.setdefault(id(group), (group, log))[1]

    def _open_journal(self) -> None:
        # Without a disk there is still the ring.
        with contextlib.suppress(OSError):
            self._journal = Journal(self._folder, self.rank, self.world_size, self._capacity)

    def _note(self, journal: Journal, entry: Entry) -> None:
        """Write a call into the journal."""
        key: list[object] = [entry.layout.op, entry.group.name, entry.tag]
        for code, position in entry.site:
            key += (id(code), position)
        key += [dtype for _, dtype in entry.inputs]
        key.append(0)
        key += [dtype for _, dtype in entry.outputs]
        key += [value for name, value in entry.arguments if name != "splits"]
        name = journal.known(tuple(key))
        if name is None:
            data = {
                "op": entry.layout.op,
                "group": entry.group.name,
                "tag": entry.tag,
                "inputs": [str(dtype).removeprefix("torch.") for _, dtype in entry.inputs],
                "outputs": [str(dtype).removeprefix("torch.") for _, dtype in entry.outputs],
                "arguments": {n: word(n, v) for n, v in entry.arguments if n != "splits"},
                "site": plain_frames(entry.site),
            }
            name = journal.name(tuple(key), data)
        shapes = f"{_extents(entry.inputs)}|{_extents(entry.outputs)}"
        peer = -2 if entry.peer is None else entry.peer
        entry.place = journal.put(name, entry.sequence, entry.entered, peer, shapes)

    def _number_message(self, entry: Entry, layout: Layout, arguments: Sequence[Any]) -> None:
        peer = -1 if layout.from_any else int(arguments[layout.peer])
        ranks = entry.group.ranks
        entry.peer = ranks[peer] if 0 <= peer < len(ranks) else -1
        entry.tag = int(arguments[layout.tag]) if layout.tag < len(arguments) else 0
        lane = (layout.op, entry.peer, entry.tag)
        entry.sequence = entry.group.messages.get(lane, 0)
        entry.group.messages[lane] = entry.sequence + 1

    def _settle(self, entry: Entry) -> bool:
        """Whether a call is over; if so, close it and let go of its tensors."""
        if entry.state is not State.STARTED:
            return entry.state is not State.ENTERED
        if not entry.work.is_completed():
            return False
        try:
            future = entry.work.get_future()
        except (NotImplementedError, RuntimeError):
            # A handle that has no future keeps its errors for whoever waits.
            self._close(entry, State.COMPLETED)
            return True
        if not future.done():
            return False
        try:
            future.value()
        except Exception as error:
            # Whatever the backend failed with.
            entry.error = str(error)[:1000] or type(error).__name__
            self._close(entry, State.FAILED)
        else:
            self._close(entry, State.COMPLETED)
        return True

    def _close(self, entry: Entry, state: State) -> None:
        entry.completed = time.monotonic_ns()
        entry.state = state
        entry.work = None
        # A slot that another call has taken since is left alone.
        if (
            entry.place >= 0
            and self._journal is not None
            and self._ring[0].entered <= entry.entered
        ):
            self._journal.mark(entry.place, _LETTERS[state])

    def _forget(self, entry: Entry) -> None:
        with self._lock:
            if entry in self._pending:
                self._pending.remove(entry)


def _is_blind(work: Any) -> bool:
    """Whether a handle neither has a future nor ever says by itself that it is over.

    gloo's reduce_scatter_tensor returns one: the last part of its work is done by who waits.
    """
    try:
        work.get_future()
    except (NotImplementedError, RuntimeError):
        return True
    return False


def _extents(shapes: Sequence[tuple[torch.Size, torch.dtype]]) -> str:
    return ";".join([_extent(shape) for shape, _ in shapes])


@lru_cache(maxsize=4096)
def _extent(shape: torch.Size) -> str:
    return ", ".join(map(str, shape))


def _shapes(arguments: Sequence[Any], position: int) -> list[tuple[torch.Size, torch.dtype]]:
    if position < 0:
        return []
    found = arguments[position]
    if isinstance(found, torch.Tensor):
        return [(found.shape, found.dtype)]
    if found and not isinstance(found[0], torch.Tensor):
        found = [tensor for row in found for tensor in row]
    return [(tensor.shape, tensor.dtype) for tensor in found]


def _options(arguments: Sequence[Any], layout: Layout) -> tuple[tuple[str, object], ...]:
    """Return what else has to agree, as objects that a dump turns into words."""
    found: list[tuple[str, object]] = []
    if layout.reduce >= 0 and (reduce := reduce_op(sys._getframe(3))) is not None:
        found.append(("reduce", reduce))
    if layout.root >= 0:
        found.append(("root", arguments[layout.root]))
    if 0 <= layout.options < len(arguments):
        options = arguments[layout.options]
        for name, attribute in (("reduce", "reduceOp"), ("root", "rootRank")):
            value = getattr(options, attribute, None)
            if name == "reduce" and value is not None:
                value = int(value.op)
            if value is not None:
                found.append((name, value))
    if 0 <= layout.splits < len(arguments) - 1:
        found.append(("splits", (arguments[layout.splits], arguments[layout.splits + 1])))
    return tuple(found)

"""One call in the ring, the counts of one group, and what a dump makes of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

from torchyard_collectives.flight._history import Group, Record, State, TensorSpec
from torchyard_collectives.flight._record.calls import Layout
from torchyard_collectives.flight._record.sites import RawSite, frames_of

__all__ = ["Entry", "Log", "group_of", "record_of", "word"]

_REDUCTIONS: Final = {
    int(getattr(dist.ReduceOp, name)): name.lower()
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
}


class Entry:
    """One call while it is in the ring; :class:`Record` is what a dump makes of it."""

    __slots__ = (
        "arguments", "completed", "entered", "error", "group", "inputs", "layout", "outputs",
        "peer", "place", "reported", "sequence", "site", "started", "state", "tag", "thread",
        "waits", "work",
    )  # fmt: skip

    group: Log
    sequence: int
    layout: Layout
    inputs: list[tuple[torch.Size, torch.dtype]]
    outputs: list[tuple[torch.Size, torch.dtype]]
    arguments: tuple[tuple[str, object], ...]
    peer: int | None
    tag: int
    place: int
    site: RawSite
    entered: int
    started: int | None
    completed: int | None
    state: State
    error: str
    thread: int
    waits: bool
    work: Any
    reported: bool


class Log:
    """What is counted of a group."""

    __slots__ = ("backend", "description", "issued", "messages", "name", "numbered", "ranks")

    def __init__(self, group: dist.ProcessGroup, name: str, numbered: bool) -> None:
        self.name = name
        try:
            self.description = str(group.group_desc)
        except RuntimeError:
            self.description = ""
        try:
            self.backend = str(dist.get_backend(group))
            self.ranks = tuple(dist.get_process_group_ranks(group))
        except (ValueError, KeyError, RuntimeError):
            # A group inside another, or one whose registration is not over.
            self.backend, self.ranks = type(group).__name__, tuple(range(group.size()))
        self.numbered = numbered
        self.issued = 0
        self.messages: dict[tuple[str, int, int], int] = {}


def record_of(entry: Entry) -> Record:
    """Return a call as a dump holds it; here places become lines of the source."""
    return Record(
        group=entry.group.name,
        sequence=entry.sequence,
        op=entry.layout.op,
        inputs=_specs(entry.inputs),
        outputs=_specs(entry.outputs),
        arguments=tuple((name, word(name, value)) for name, value in entry.arguments),
        peer=entry.peer,
        tag=entry.tag,
        site=frames_of(entry.site),
        entered=entry.entered,
        started=entry.started,
        completed=entry.completed,
        state=entry.state,
        error=entry.error,
    )


def _specs(shapes: Sequence[tuple[torch.Size, torch.dtype]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(tuple(shape), str(dtype).removeprefix("torch.")) for shape, dtype in shapes
    )


def word(name: str, value: Any) -> str:
    """Return an argument as text."""
    if name == "splits":
        return "/".join(" ".join(map(str, side)) for side in value)
    if name == "reduce":
        return _REDUCTIONS.get(value, str(value))
    return str(value)


def group_of(log: Log) -> Group:
    """Return a group as a dump holds it."""
    return Group(log.name, log.ranks, log.description, log.backend, log.issued, log.numbered)

"""Journals of ranks that wrote no dump, as histories."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

from torchyard.evidence.documents import Between
from torchyard_collectives.flight._dump.document import parsed, structured
from torchyard_collectives.flight._dump.journal import WIDTH
from torchyard_collectives.flight._dump.process import is_alive
from torchyard_collectives.flight._errors import FlightDumpError
from torchyard_collectives.flight._history import (
    NO_DUMP,
    Count,
    Ending,
    EndingKind,
    Frame,
    Group,
    Rank,
    RankHistory,
    Record,
    State,
    TensorSpec,
    Text,
)

__all__ = ["newest", "read_journal"]

_STATES: Final = {
    "e": State.ENTERED,
    "s": State.STARTED,
    "c": State.COMPLETED,
    "f": State.FAILED,
}
_MOST_SLOTS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Line:
    kind: Text


@dataclass(frozen=True, slots=True)
class _Head:
    rank: Rank
    world_size: Annotated[int, Between(1, 1 << 24)]
    host: Text
    pid: Count
    wall_minus_monotonic: int


@dataclass(frozen=True, slots=True)
class _Name:
    number: Count
    op: Text
    group: Text
    tag: int
    inputs: tuple[Text, ...]
    outputs: tuple[Text, ...]
    arguments: dict[str, Text]
    site: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class _Slot:
    """A call: the number of its name, its own, when it was entered, its peer, its shapes."""

    n: Count
    s: Count
    t: int
    p: Annotated[int, Between(-2, 1 << 24)]
    i: Text


def read_journal(names: bytes, slots: bytes, source: str) -> RankHistory:
    """Return the history that a rank's two journal files hold.

    A line that was being written when the process ended is left out.
    """
    head: _Head | None = None
    groups: dict[str, Group] = {}
    known: dict[int, _Name] = {}
    for where, line in _lines(names, source):
        kind = structured(line, _Line, where).kind
        if kind == "head" and head is None:
            head = structured(line, _Head, where)
        elif kind == "group":
            group = structured(line, Group, where)
            groups[group.name] = group
        elif kind == "name":
            name = structured(line, _Name, where)
            known[name.number] = name
    if head is None:
        raise FlightDumpError(f"{source}: expected a journal, got one without its first line")
    if len(slots) > _MOST_SLOTS * WIDTH:
        raise FlightDumpError(f"{source}: expected at most {_MOST_SLOTS} calls")
    records = sorted(_records(slots, known, groups, source), key=lambda record: record.entered)
    host, process = head.host, head.pid
    kind, text = EndingKind.GONE, "no dump; it died, or hangs where it cannot write one,"
    if host == socket.gethostname():
        if is_alive(process):
            kind, text = EndingKind.RUNNING, ""
        else:
            text = f"no dump: its process, {process} on {host}, has died"
    return RankHistory(
        rank=head.rank,
        world_size=head.world_size,
        groups=groups,
        records=tuple(records),
        host=host,
        pid=process,
        reason=NO_DUMP,
        wall_minus_monotonic=head.wall_minus_monotonic,
        dropped=min((r.sequence for r in records if not r.is_p2p), default=0),
        ending=Ending(kind, text),
        source=source,
    )


def newest(slots: bytes) -> int:
    """Return when the last call in a journal was entered; 0 without any."""
    latest = 0
    for row in _rows(slots):
        try:
            latest = max(latest, structured(parsed(row[1:], ""), _Slot, "").t)
        except FlightDumpError:
            continue
    return latest


def _lines(data: bytes, source: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        where = f"{source}:{number}"
        try:
            found = parsed(line, where)
        except FlightDumpError:
            continue
        yield where, found


def _rows(slots: bytes) -> Iterator[str]:
    for start in range(0, len(slots) - WIDTH + 1, WIDTH):
        row = slots[start : start + WIDTH].decode("ascii", "replace").rstrip()
        if row[:1] in _STATES:
            yield row


def _records(
    slots: bytes, known: dict[int, _Name], groups: dict[str, Group], source: str
) -> Iterator[Record]:
    for number, row in enumerate(_rows(slots)):
        where = f"{source}: call {number}"
        try:
            found = parsed(row[1:], where)
        except FlightDumpError:
            continue
        slot = structured(found, _Slot, where)
        name = known.get(slot.n)
        if name is None or name.group not in groups:
            continue
        inputs, outputs = _shapes(slot.i, name)
        yield Record(
            group=name.group,
            sequence=slot.s,
            op=name.op,
            inputs=inputs,
            outputs=outputs,
            arguments=tuple(name.arguments.items()),
            peer=None if slot.p == -2 else slot.p,
            tag=name.tag,
            site=name.site,
            entered=slot.t,
            state=_STATES[row[0]],
        )


def _shapes(text: str, name: _Name) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return inputs and outputs; none where they did not fit into the line."""
    sides = text.split("|")
    if len(sides) != 2:
        return (), ()
    found = []
    for side, dtypes in zip(sides, (name.inputs, name.outputs), strict=True):
        shapes = side.split(";") if dtypes else []
        try:
            found.append(
                tuple(
                    TensorSpec(tuple(int(one) for one in shape.split(",") if one.strip()), dtype)
                    for shape, dtype in zip(shapes, dtypes, strict=True)
                )
            )
        except ValueError:
            found.append(())
    return found[0], found[1]

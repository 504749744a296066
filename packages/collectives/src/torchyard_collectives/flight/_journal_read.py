"""Journals of ranks that wrote no dump, as histories."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Final

from torchyard_collectives.flight._errors import FlightDumpError
from torchyard_collectives.flight._fields import Fields
from torchyard_collectives.flight._history import (
    NO_DUMP,
    Ending,
    EndingKind,
    Frame,
    Group,
    RankHistory,
    Record,
    State,
    TensorSpec,
)
from torchyard_collectives.flight._journal import WIDTH
from torchyard_collectives.flight._process import is_alive

__all__ = ["newest", "read_journal"]

_STATES: Final = {
    "e": State.ENTERED,
    "s": State.STARTED,
    "c": State.COMPLETED,
    "f": State.FAILED,
}
_MOST_SLOTS: Final = 1 << 20


def read_journal(names: bytes, slots: bytes, source: str) -> RankHistory:
    """Return the history that a rank's two journal files hold.

    A line that was being written when the process ended is left out.
    """
    lines = list(_lines(names, source))
    heads = [line for line in lines if line.text("kind") == "head"]
    if not heads:
        raise FlightDumpError(f"{source}: expected a journal, got one without its first line")
    head = heads[0]
    groups: dict[str, Group] = {}
    known: dict[int, Fields] = {}
    for line in lines:
        if line.text("kind") == "group":
            name = line.text("name")
            groups[name] = Group(
                name,
                tuple(line.sequence("ranks").integers(0, 1 << 24)),
                line.text("description"),
                line.text("backend"),
                numbered=line.flag("numbered"),
            )
        elif line.text("kind") == "name":
            known[line.integer("number", 0)] = line
    if len(slots) > _MOST_SLOTS * WIDTH:
        raise FlightDumpError(f"{source}: expected at most {_MOST_SLOTS} calls")
    records = sorted(_records(slots, known, groups, source), key=lambda record: record.entered)
    host, process = head.text("host"), head.integer("pid", 0)
    kind, text = EndingKind.GONE, "no dump; it died, or hangs where it cannot write one,"
    if host == socket.gethostname():
        if is_alive(process):
            kind, text = EndingKind.RUNNING, ""
        else:
            text = f"no dump: its process, {process} on {host}, has died"
    return RankHistory(
        rank=head.integer("rank", 0, 1 << 24),
        world_size=head.integer("world_size", 1, 1 << 24),
        groups=groups,
        records=tuple(records),
        host=host,
        pid=process,
        reason=NO_DUMP,
        wall_minus_monotonic=head.integer("wall_minus_monotonic"),
        dropped=min((r.sequence for r in records if not r.is_p2p), default=0),
        ending=Ending(kind, text),
        source=source,
    )


def newest(slots: bytes) -> int:
    """Return when the last call in a journal was entered; 0 without any."""
    latest = 0
    for row in _rows(slots):
        try:
            latest = max(latest, Fields(json.loads(row[1:]), "").integer("t"))
        except (FlightDumpError, ValueError, RecursionError):
            continue
    return latest


def _lines(data: bytes, source: str) -> Iterator[Fields]:
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            continue
        yield Fields(parsed, f"{source}:{number}")


def _rows(slots: bytes) -> Iterator[str]:
    for start in range(0, len(slots) - WIDTH + 1, WIDTH):
        row = slots[start : start + WIDTH].decode("ascii", "replace").rstrip()
        if row[:1] in _STATES:
            yield row


def _records(
    slots: bytes, known: dict[int, Fields], groups: dict[str, Group], source: str
) -> Iterator[Record]:
    for number, row in enumerate(_rows(slots)):
        try:
            slot = Fields(json.loads(row[1:]), f"{source}: call {number}")
        except (ValueError, RecursionError):
            continue
        name = known.get(slot.integer("n", 0))
        if name is None or name.text("group") not in groups:
            continue
        inputs, outputs = _shapes(slot.text("i"), name)
        peer = slot.integer("p", -2, 1 << 24)
        yield Record(
            group=name.text("group"),
            sequence=slot.integer("s", 0),
            op=name.text("op"),
            inputs=inputs,
            outputs=outputs,
            arguments=tuple(name.table("arguments").pairs()),
            peer=None if peer == -2 else peer,
            tag=name.integer("tag"),
            site=tuple(
                Frame(row.text("file"), row.integer("line", 0), row.text("function"))
                for row in name.sequence("site").rows()
            ),
            entered=slot.integer("t"),
            state=_STATES[row[0]],
        )


def _shapes(text: str, name: Fields) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return inputs and outputs; none where they did not fit into the line."""
    sides = text.split("|")
    if len(sides) != 2:
        return (), ()
    found = []
    for side, key in zip(sides, ("inputs", "outputs"), strict=True):
        dtypes = list(name.sequence(key).texts())
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

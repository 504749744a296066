"""A dump as JSON: written plainly, read with every field checked.

``{"schema": "torchyard.flight", "version": 1, ...}``; docs/flight-recorder.md lists the fields.
Call sites are written once and named by their number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from torchyard.evidence.documents import Between
from torchyard_collectives.flight._dump.document import structured
from torchyard_collectives.flight._errors import FlightDumpError
from torchyard_collectives.flight._history import (
    Count,
    Creation,
    Ending,
    Frame,
    Group,
    Rank,
    RankHistory,
    Record,
    State,
    TensorSpec,
    Text,
)

__all__ = ["NAME", "VERSION", "dumps", "from_json", "to_json"]

NAME: Final = "torchyard.flight"
VERSION: Final = 1


def to_json(history: RankHistory) -> dict[str, Any]:
    """Return a history as JSON's containers."""
    sites: dict[tuple[Frame, ...], int] = {}
    records = [_record_to_json(record, sites) for record in history.records]
    data: dict[str, Any] = {
        "schema": NAME,
        "version": VERSION,
        "rank": history.rank,
        "world_size": history.world_size,
        "host": history.host,
        "pid": history.pid,
        "reason": history.reason,
        "clock": {"wall_minus_monotonic": history.wall_minus_monotonic, "dumped": history.dumped},
        "dropped": history.dropped,
        "ending": {
            "kind": str(history.ending.kind),
            "text": history.ending.text,
            "site": [_frame_to_json(frame) for frame in history.ending.site],
        },
        "stack": [_frame_to_json(frame) for frame in history.stack],
        "groups": [
            {
                "name": group.name,
                "description": group.description,
                "backend": group.backend,
                "ranks": list(group.ranks),
                "issued": group.issued,
                "numbered": group.numbered,
            }
            for group in history.groups.values()
        ],
        "sites": [[_frame_to_json(frame) for frame in site] for site in sites],
        "records": records,
    }
    if history.creations is not None:
        data["creations"] = [
            {
                "number": one.number,
                "ranks": list(one.ranks),
                "entered": one.entered,
                "over": one.over,
                "site": [_frame_to_json(frame) for frame in one.site],
            }
            for one in history.creations
        ]
    return data


@dataclass(frozen=True, slots=True)
class _Head:
    schema: Text
    version: Count


@dataclass(frozen=True, slots=True)
class _Clock:
    wall_minus_monotonic: int
    dumped: int | None


@dataclass(frozen=True, slots=True)
class _Record:
    group: Text
    sequence: Count
    op: Text
    inputs: tuple[tuple[tuple[Count, ...], Text], ...]
    outputs: tuple[tuple[tuple[Count, ...], Text], ...]
    arguments: dict[str, Text]
    site: Count
    entered: int
    started: int | None
    completed: int | None
    state: State
    peer: Annotated[int, Between(-1, 1 << 24)] | None = None
    tag: int = 0
    error: Text = ""


@dataclass(frozen=True, slots=True)
class _Creation:
    number: Count
    ranks: tuple[Rank, ...]
    entered: int
    over: bool
    site: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class _Dump:
    rank: Rank
    world_size: Annotated[int, Between(1, 1 << 24)]
    host: Text
    pid: Count
    reason: Text
    clock: _Clock
    dropped: Count
    ending: Ending
    stack: tuple[Frame, ...]
    groups: tuple[Group, ...]
    sites: tuple[tuple[Frame, ...], ...]
    records: tuple[_Record, ...]
    # Dumps of before this was recorded do not have it.
    creations: tuple[_Creation, ...] | None = None


def from_json(data: object, source: str) -> RankHistory:
    """Return the history that a parsed dump holds; FlightDumpError names the wrong field."""
    head = structured(data, _Head, source)
    if head.schema != NAME:
        raise FlightDumpError(f"{source}: schema: expected {NAME!r}, got {head.schema[:80]!r}")
    if head.version != VERSION:
        raise FlightDumpError(
            f"{source}: version: expected {VERSION}, got {head.version}; read it with the "
            f"torchyard that wrote it"
        )
    dump = structured(data, _Dump, source)
    groups = {group.name: group for group in dump.groups}
    return RankHistory(
        rank=dump.rank,
        world_size=dump.world_size,
        groups=groups,
        records=tuple(
            _record(row, dump.sites, groups, f"{source}.records[{number}]")
            for number, row in enumerate(dump.records)
        ),
        host=dump.host,
        pid=dump.pid,
        reason=dump.reason,
        wall_minus_monotonic=dump.clock.wall_minus_monotonic,
        dumped=dump.clock.dumped,
        dropped=dump.dropped,
        stack=dump.stack,
        ending=dump.ending,
        source=source,
        creations=None if dump.creations is None else tuple(map(_creation, dump.creations)),
    )


def dumps(history: RankHistory) -> str:
    """Return a history as JSON text."""
    return json.dumps(to_json(replace(history, source="")), separators=(",", ":"))


def _frame_to_json(frame: Frame) -> dict[str, Any]:
    data: dict[str, Any] = {"file": frame.file, "line": frame.line, "function": frame.function}
    if frame.branches:
        data["branches"] = [
            {"line": one.line, "end": one.end, "arm": one.arm, "test": one.test}
            for one in frame.branches
        ]
    if frame.upcoming:
        data["upcoming"] = list(frame.upcoming)
    return data


def _record_to_json(record: Record, sites: dict[tuple[Frame, ...], int]) -> dict[str, Any]:
    data: dict[str, Any] = {
        "group": record.group,
        "sequence": record.sequence,
        "op": record.op,
        "inputs": [[list(spec.shape), spec.dtype] for spec in record.inputs],
        "outputs": [[list(spec.shape), spec.dtype] for spec in record.outputs],
        "arguments": dict(record.arguments),
        "site": sites.setdefault(record.site, len(sites)),
        "entered": record.entered,
        "started": record.started,
        "completed": record.completed,
        "state": str(record.state),
    }
    if record.peer is not None:
        data |= {"peer": record.peer, "tag": record.tag}
    if record.error:
        data["error"] = record.error
    return data


def _creation(row: _Creation) -> Creation:
    return Creation(str(row.number), row.ranks, row.entered, row.over, row.site)


def _record(
    row: _Record,
    sites: tuple[tuple[Frame, ...], ...],
    groups: Mapping[str, Group],
    where: str,
) -> Record:
    if row.group not in groups:
        raise FlightDumpError(
            f"{where}.group: expected one of the dump's groups, got {row.group[:80]!r}"
        )
    if row.site >= len(sites):
        raise FlightDumpError(
            f"{where}.site: expected one of the dump's {len(sites)} sites, got {row.site}"
        )
    return Record(
        group=row.group,
        sequence=row.sequence,
        op=row.op,
        inputs=tuple(TensorSpec(shape, dtype) for shape, dtype in row.inputs),
        outputs=tuple(TensorSpec(shape, dtype) for shape, dtype in row.outputs),
        arguments=tuple(row.arguments.items()),
        peer=row.peer,
        tag=row.tag,
        site=sites[row.site],
        entered=row.entered,
        started=row.started,
        completed=row.completed,
        state=row.state,
        error=row.error,
    )

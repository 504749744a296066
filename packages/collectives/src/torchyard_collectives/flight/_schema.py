"""A dump as JSON: written plainly, read with every field checked.

``{"schema": "torchyard.flight", "version": 1, ...}``; docs/flight-recorder.md lists the fields.
Call sites are written once and named by their number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from torchyard_collectives.flight._errors import FlightDumpError
from torchyard_collectives.flight._fields import Fields
from torchyard_collectives.flight._history import (
    Branch,
    Creation,
    Ending,
    EndingKind,
    Frame,
    Group,
    RankHistory,
    Record,
    State,
    TensorSpec,
)

__all__ = ["NAME", "VERSION", "dumps", "from_json", "to_json"]

NAME: Final = "torchyard.flight"
VERSION: Final = 1
_MAX_RANK: Final = 1 << 24


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


def from_json(data: object, source: str) -> RankHistory:
    """Return the history that a parsed dump holds; FlightDumpError names the wrong field."""
    top = Fields(data, source)
    name = top.text("schema")
    if name != NAME:
        raise FlightDumpError(f"{source}: schema: expected {NAME!r}, got {name[:80]!r}")
    version = top.integer("version", 0, 1 << 31)
    if version != VERSION:
        raise FlightDumpError(
            f"{source}: version: expected {VERSION}, got {version}; read it with the torchyard "
            f"that wrote it"
        )
    clock = top.table("clock")
    ending = top.table("ending")
    sites = [tuple(_frame(frame) for frame in site.rows()) for site in top.rows_of_lists("sites")]
    groups = {group.name: group for group in map(_group, top.sequence("groups").rows())}
    records = tuple(_record(row, sites, groups) for row in top.sequence("records").rows())
    return RankHistory(
        rank=top.integer("rank", 0, _MAX_RANK),
        world_size=top.integer("world_size", 1, _MAX_RANK),
        groups=groups,
        records=records,
        host=top.text("host"),
        pid=top.integer("pid", 0),
        reason=top.text("reason"),
        wall_minus_monotonic=clock.integer("wall_minus_monotonic"),
        dumped=clock.optional_integer("dumped"),
        dropped=top.integer("dropped", 0),
        stack=tuple(_frame(frame) for frame in top.sequence("stack").rows()),
        ending=Ending(
            EndingKind(ending.word("kind", EndingKind)),
            ending.text("text"),
            tuple(_frame(frame) for frame in ending.sequence("site").rows()),
        ),
        source=source,
        # Dumps of before this was recorded do not have it.
        creations=tuple(map(_creation, top.sequence("creations").rows()))
        if top.has("creations")
        else None,
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


def _frame(row: Fields) -> Frame:
    branches = row.sequence("branches").rows() if row.has("branches") else ()
    return Frame(
        file=row.text("file"),
        line=row.integer("line", 0),
        function=row.text("function"),
        branches=tuple(
            Branch(one.integer("line", 0), one.integer("end", 0), one.text("arm"), one.text("test"))
            for one in branches
        ),
        upcoming=tuple(row.sequence("upcoming").texts()) if row.has("upcoming") else (),
    )


def _group(row: Fields) -> Group:
    return Group(
        name=row.text("name"),
        ranks=tuple(row.sequence("ranks").integers(0, _MAX_RANK)),
        description=row.text("description"),
        backend=row.text("backend"),
        issued=row.integer("issued", 0),
        numbered=row.flag("numbered"),
    )


def _creation(row: Fields) -> Creation:
    return Creation(
        name=str(row.integer("number", 0)),
        ranks=tuple(row.sequence("ranks").integers(0, _MAX_RANK)),
        entered=row.integer("entered"),
        over=row.flag("over"),
        site=tuple(_frame(frame) for frame in row.sequence("site").rows()),
    )


def _specs(row: Fields, name: str) -> tuple[TensorSpec, ...]:
    found = []
    for pair in row.rows_of_lists(name):
        shape, dtype = pair.pair()
        found.append(TensorSpec(tuple(shape.integers(0)), dtype))
    return tuple(found)


def _record(row: Fields, sites: list[tuple[Frame, ...]], groups: Mapping[str, Group]) -> Record:
    group = row.text("group")
    if group not in groups:
        raise FlightDumpError(
            f"{row.where}.group: expected one of the dump's groups, got {group[:80]!r}"
        )
    return Record(
        group=group,
        sequence=row.integer("sequence", 0),
        op=row.text("op"),
        inputs=_specs(row, "inputs"),
        outputs=_specs(row, "outputs"),
        arguments=tuple(row.table("arguments").pairs()),
        peer=row.integer("peer", -1, _MAX_RANK) if row.has("peer") else None,
        tag=row.integer("tag") if row.has("tag") else 0,
        site=sites[row.integer("site", 0, len(sites) - 1)],
        entered=row.integer("entered"),
        started=row.optional_integer("started"),
        completed=row.optional_integer("completed"),
        state=State(row.word("state", State)),
        error=row.text("error") if row.has("error") else "",
    )

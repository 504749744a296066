"""Decisions as data: dumped to a file, compared, and followed as a lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torchyard import arguments
from torchyard._errors import LockError

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class DecisionDump:
    """Which implementation wins per contract and bucket, on one machine.

    Attributes:
        made_with: versions and machine, as text.
        decisions: contract to bucket to implementation; None where none supports the bucket.
    """

    made_with: Mapping[str, str]
    decisions: Mapping[str, Mapping[str, str | None]]

    def to_json(self) -> dict[str, Any]:
        """Return the dump as JSON-ready data, sorted."""
        return {
            "schema": SCHEMA,
            "made_with": dict(sorted(self.made_with.items())),
            "decisions": {
                contract: dict(sorted(buckets.items()))
                for contract, buckets in sorted(self.decisions.items())
            },
        }


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """One bucket whose decision differs between two dumps; None where a dump has no such bucket."""

    contract: str
    bucket: str
    old: str | None
    new: str | None
    kind: str


def read_dump(path: Path) -> DecisionDump:
    """Read a file of decisions; raise LockError that names the file and what is wrong with it."""
    path = arguments.path("read_dump", "path", path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LockError(
            f"{path}: expected a file made by `torchyard decisions dump`, got: {error}"
        ) from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise LockError(
            f"{path}: expected decisions of schema {SCHEMA}, got {found!r}; make the file again "
            f"with `torchyard decisions dump`"
        )
    decisions = data.get("decisions")
    made_with = data.get("made_with")
    if decisions is None or made_with is None or not _well_formed(made_with, decisions):
        raise LockError(
            f"{path}: expected 'made_with' (text by name) and 'decisions' (implementation by "
            f"bucket by contract); make the file again with `torchyard decisions dump`"
        )
    return DecisionDump(made_with, decisions)


def diff_dumps(old: DecisionDump, new: DecisionDump) -> tuple[DecisionChange, ...]:
    """Return what differs between two dumps: changed, added and removed buckets, sorted."""
    for name, dump in (("old", old), ("new", new)):
        arguments.instance("diff_dumps", name, dump, DecisionDump)
    before = _flatten(old)
    after = _flatten(new)
    changes = []
    for key in sorted(before.keys() | after.keys()):
        contract, bucket = key
        if key not in after:
            kind = "removed"
        elif key not in before:
            kind = "added"
        elif before[key] != after[key]:
            kind = "changed"
        else:
            continue
        changes.append(DecisionChange(contract, bucket, before.get(key), after.get(key), kind))
    return tuple(changes)


def _flatten(dump: DecisionDump) -> dict[tuple[str, str], str | None]:
    return {
        (contract, bucket): name
        for contract, buckets in dump.decisions.items()
        for bucket, name in buckets.items()
    }


def _well_formed(made_with: object, decisions: object) -> bool:
    if not (isinstance(made_with, dict) and isinstance(decisions, dict)):
        return False
    return all(isinstance(item, str) for item in made_with.values()) and all(
        isinstance(buckets, dict)
        and all(name is None or isinstance(name, str) for name in buckets.values())
        for buckets in decisions.values()
    )

"""Maturity: one table of features, each with a stage per device."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from torchyard import arguments
from torchyard._errors import MaturityError

_TABLE: Final = Path(__file__).with_name("maturity.toml")
_KEYS: Final = {"id", "device", "summary", "stage", "api", "since", "tracking", "remove_in"}
_warned: set[tuple[str, str]] = set()


class PrototypeWarning(FutureWarning):
    """A prototype is used: it may change or go in any release. Warned once per process."""


class Stage(StrEnum):
    """How far a feature has come on a device."""

    PROTOTYPE = "prototype"
    BETA = "beta"
    STABLE = "stable"
    DEPRECATED = "deprecated"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Feature:
    """One row: a feature on a device.

    Attributes:
        id: ``component.feature``.
        device: torch device type, or ``*`` for every device without a row of its own.
        summary: one line for a person.
        stage: how far it has come.
        api: ``stable`` or ``unstable``: whether its signature may change.
        since: the release that first had it.
        tracking: where its way to stable is kept.
        remove_in: the release that removes it; exactly where it is deprecated or removed.
    """

    id: str
    device: str
    summary: str
    stage: Stage
    api: str
    since: str
    tracking: str
    remove_in: str = ""


@lru_cache(maxsize=1)
def features() -> tuple[Feature, ...]:
    """Return every row of the table that ships with torchyard, sorted."""
    return parse_features(_TABLE.read_text(encoding="utf-8"))


def parse_features(text: str) -> tuple[Feature, ...]:
    """Read a maturity table; MaturityError names the row and what is wrong with it."""
    import tomllib

    try:
        found = tomllib.loads(text).get("feature")
    except tomllib.TOMLDecodeError as error:
        raise MaturityError(f"maturity table: expected TOML, got: {error}") from error
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise MaturityError("maturity table: expected [[feature]] rows, found none")
    rows = [_feature(row) for row in found]
    keys = [(row.id, row.device) for row in rows]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise MaturityError(f"maturity table: expected each feature x device once, got {repeated}")
    return tuple(sorted(rows, key=lambda row: (row.id, row.device)))


def features_of(device: str) -> tuple[Feature, ...]:
    """Return, for every feature, the row that holds on a device."""
    rows = {row.id: row for row in features() if row.device == "*"}
    rows.update({row.id: row for row in features() if row.device == device})
    return tuple(rows[identifier] for identifier in sorted(rows))


def feature(identifier: str, device: str) -> Feature:
    """Return a feature's row for a device, or its ``*`` row."""
    rows = {(row.id, row.device): row for row in features()}
    row = rows.get((identifier, device), rows.get((identifier, "*")))
    if row is None:
        known = ", ".join(sorted({identifier for identifier, _ in rows}))
        raise MaturityError(f"feature {identifier!r} on {device!r}: not in the table ({known})")
    return row


def note_use(identifier: str, device: str) -> None:
    """Warn once per process that a feature is a prototype on this device, or is deprecated.

    Raises:
        MaturityError: the table lacks the feature, or says that it was removed; every time.
    """
    arguments.text("note_use", "identifier", identifier)
    arguments.text("note_use", "device", device)
    key = (identifier, device)
    if key in _warned:
        return
    row = feature(identifier, device)
    if row.stage is Stage.REMOVED:
        raise MaturityError(f"{row.id} on {device} was removed in {row.remove_in}: {row.summary}")
    _warned.add(key)
    if row.stage is Stage.PROTOTYPE:
        warnings.warn(
            f"{row.id} on {device} is a prototype: {row.summary}. It may change in any release.",
            PrototypeWarning,
            stacklevel=3,
        )
    elif row.stage is Stage.DEPRECATED:
        warnings.warn(
            f"{row.id} on {device} is deprecated and goes in {row.remove_in}: {row.summary}",
            FutureWarning,
            stacklevel=3,
        )


def _feature(row: Mapping[str, Any]) -> Feature:
    name = f"feature {row.get('id', '?')!r} on {row.get('device', '?')!r}"
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise MaturityError(f"{name}: unknown keys {unknown}; known: {sorted(_KEYS)}")
    missing = sorted(key for key in _KEYS - {"remove_in"} if not row.get(key))
    if missing:
        raise MaturityError(f"{name}: missing keys {missing}")
    wrong = sorted(key for key, value in row.items() if not isinstance(value, str))
    if wrong:
        raise MaturityError(f"{name}: expected text for every key, got something else for {wrong}")
    try:
        stage = Stage(row["stage"])
    except ValueError:
        known = ", ".join(Stage)
        raise MaturityError(
            f"{name}: stage: expected one of {known}, got {row['stage']!r}"
        ) from None
    if row["api"] not in {"stable", "unstable"}:
        raise MaturityError(f"{name}: api: expected 'stable' or 'unstable', got {row['api']!r}")
    if stage is Stage.STABLE and row["api"] != "stable":
        raise MaturityError(f"{name}: api: a stable feature has a stable api, got {row['api']!r}")
    leaving = stage in {Stage.DEPRECATED, Stage.REMOVED}
    if leaving != bool(row.get("remove_in")):
        raise MaturityError(
            f"{name}: remove_in: expected exactly where a feature is deprecated or removed, got "
            f"stage {stage} and remove_in {row.get('remove_in')!r}"
        )
    return Feature(**{**row, "stage": stage})

"""Levels of evidence: how well a feature is proven on a device, and by what."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

from torchyard import arguments
from torchyard._errors import MaturityError
from torchyard._features.maturity import features
from torchyard._tables import Table

_TABLE: Final = Path(__file__).with_name("evidence.toml")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class EvidenceLevel(StrEnum):
    """How well a feature is proven on a device; each level includes those before it.

    A level is never given by hand: every one above ``declared`` names the bundle that proves it.
    """

    DECLARED = "declared"
    """The code says that it supports the device. Nothing was tried."""

    COMPILES = "compiles"
    """Its kernels compile for the device's architecture, without the device."""

    EMULATED = "right when emulated"
    """Its results are right under an interpreter, an emulator, or on a simulated device."""

    ON_DEVICE = "right on the device"
    """Its results are right on the device itself."""

    AT_LIMIT = "at the device's limit"
    """It is as fast as what limits it on the device allows, as measured there."""

    @property
    def rank(self) -> int:
        """The level's place in the ladder, 0 for ``declared``."""
        return list(EvidenceLevel).index(self)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What proves a feature on a device.

    Attributes:
        feature: ``component.feature``.
        device: torch device type.
        level: what is proven.
        date: the day of the run, as ``2026-12-31``; empty for ``declared``, as all below.
        tool: what ran, with its version.
        figures: the results, in words.
        bundle: the file that holds the run, relative to the root of the source tree.
        digest: sha256 of that file, in hexadecimal.
    """

    feature: str
    device: str
    level: EvidenceLevel = EvidenceLevel.DECLARED
    date: str = ""
    tool: str = ""
    figures: str = ""
    bundle: str = ""
    digest: str = ""


@lru_cache(maxsize=1)
def evidence() -> tuple[Evidence, ...]:
    """Return the evidence that ships with torchyard, sorted; one row per feature and device."""
    return parse_evidence(_TABLE.read_text(encoding="utf-8"))


def parse_evidence(text: str) -> tuple[Evidence, ...]:
    """Read a table of evidence; MaturityError names the row and what is wrong with it."""
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MaturityError(f"evidence: expected TOML, got: {error}") from error
    table = Table(data, "", MaturityError)
    rows = [_evidence(entry) for entry in table.entries("evidence")]
    table.finish()
    keys = [(row.feature, row.device) for row in rows]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise MaturityError(f"evidence: expected each feature x device once, got {repeated}")
    return tuple(sorted(rows, key=lambda row: (row.feature, row.device)))


def evidence_of(feature: str, device: str) -> Evidence:
    """Return what proves a feature on a device; ``declared`` where nothing does."""
    arguments.text("evidence_of", "feature", feature)
    arguments.text("evidence_of", "device", device)
    found = (row for row in evidence() if (row.feature, row.device) == (feature, device))
    return next(found, Evidence(feature, device))


def levels(devices: tuple[str, ...] = ()) -> tuple[Evidence, ...]:
    """Return the evidence of every feature on every device, sorted.

    Args:
        devices: device types besides those that the tables name.
    """
    rows = features()
    named = {row.device for row in rows} | {row.device for row in evidence()} | set(devices)
    return tuple(
        evidence_of(feature, device)
        for feature in sorted({row.id for row in rows})
        for device in sorted(named)
        # What belongs to no device has one row, and a feature of some devices has theirs.
        if any(row.id == feature and row.device in {device, "*"} for row in rows)
    )


def _evidence(entry: Table) -> Evidence:
    try:
        level = EvidenceLevel(entry.take("level", str))
    except ValueError:
        raise MaturityError(
            f"{entry.at('level')}: expected one of {', '.join(EvidenceLevel)}, "
            f"got {entry.data['level']!r}"
        ) from None
    if level is EvidenceLevel.DECLARED:
        raise MaturityError(f"{entry.at('level')}: what is only declared has no row")
    values = {
        name: entry.take(name, str)
        for name in ("feature", "device", "date", "tool", "figures", "bundle", "digest")
    }
    entry.finish()
    empty = sorted(name for name, value in values.items() if not value.strip())
    if empty:
        raise MaturityError(f"{entry.at(empty[0])}: expected it not empty: a level needs evidence")
    try:
        datetime.date.fromisoformat(values["date"])
    except ValueError as error:
        raise MaturityError(f"{entry.at('date')}: expected a day: {error}") from None
    if not _DIGEST.fullmatch(values["digest"]):
        raise MaturityError(f"{entry.at('digest')}: expected sha256 in hexadecimal")
    return Evidence(level=level, **values)

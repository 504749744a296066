"""The scorecard: one row per cell of each gate, and whether the candidate may be released.

A row says what evidence shows about these very bytes. What was not tried, or was tried on other
bytes, is unverified; it is never green.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from torchyard_release._declaration._train import ANY_CELL, Gate, Waiver
from torchyard_release._records._candidate import sha256
from torchyard_release._records._evidence import Evidence

# The gates that a step of the train records as it goes, and that step.
_RECORDED: Final = {
    "api": "inspect",
    "build": "build --again",
    "check": "build --again",
    "inspect": "inspect",
    "sbom": "inspect",
}


class Status(StrEnum):
    """The state of a row."""

    PASS = "pass"
    FAIL = "fail"
    UNVERIFIED = "unverified"
    WAIVED = "waived"


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of one gate.

    Attributes:
        gate: its gate.
        cell: which of the gate's cells; empty where it has one.
        blocking: whether it keeps the candidate while it is not green; otherwise it informs.
        owner: who is asked about it.
        status: its state.
        text: why, in a sentence; for what is not green, what to do next too.
        before: its state without its waiver; empty without one.
        stale: whether what evidence there is, is about other bytes.
        evidence: the evidence's file; empty where there is none.
        digest: sha256 of that file.
        candidate: the candidate that was tried.
        when: when it was.
        seconds: how long that took.
        command: how to try again.
        details: lines for whoever looks closer.
    """

    gate: str
    cell: str
    blocking: bool
    owner: str
    status: Status
    text: str
    before: str = ""
    stale: bool = False
    evidence: str = ""
    digest: str = ""
    candidate: str = ""
    when: str = ""
    seconds: float = 0.0
    command: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def stops(self) -> bool:
        """Whether the candidate may not leave because of it."""
        return self.blocking and self.status in {Status.FAIL, Status.UNVERIFIED}


@dataclass(frozen=True, slots=True)
class Scorecard:
    """A candidate as its evidence shows it.

    Attributes:
        project: the train's name.
        version: what is to be released.
        candidate: which candidate.
        commit: what it was built from.
        today: the date by which waivers were judged.
        artifacts: file name -> sha256 of the candidate.
        rows: every cell of every gate, in the order of train.toml.
        notes: what a person should know besides, such as a waiver that waives nothing.
        damage: what of its files and signatures is not as it was made, a line each.
    """

    project: str
    version: str
    candidate: str
    commit: str
    today: datetime.date
    artifacts: Mapping[str, str]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether every blocking row passes, of which there is at least one."""
        blocking = [row for row in self.rows if row.blocking]
        if not blocking or not self.artifacts or self.damage:
            return False
        return not any(row.stops for row in blocking)

    def counts(self) -> dict[str, int]:
        """Return the number of rows by their state."""
        return {status.value: sum(row.status is status for row in self.rows) for status in Status}

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON's own types."""
        return {
            **asdict(self),
            "today": self.today.isoformat(),
            "artifacts": dict(sorted(self.artifacts.items())),
            "ready": self.ready,
            "counts": self.counts(),
            "rows": [{**asdict(row), "stops": row.stops} for row in self.rows],
        }


def together(rows: Iterable[Row]) -> list[tuple[Row, list[str]]]:
    """Return one row of each that say the same of a gate, with the cells of all."""
    found: dict[tuple[str, Status, str, str], tuple[Row, list[str]]] = {}
    for row in rows:
        key = (row.gate, row.status, row.before, row.text)
        found.setdefault(key, (row, []))[1].append(row.cell)
    return list(found.values())


def judge(
    gates: Sequence[Gate],
    waivers: Sequence[Waiver],
    found: Mapping[Path, Evidence],
    artifacts: Mapping[str, str],
    *,
    today: datetime.date,
    expected: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return the rows of every gate, and notes.

    Args:
        gates: the gates of train.toml.
        waivers: its waivers.
        found: evidence by its file, of this candidate and of earlier ones.
        artifacts: file name -> sha256 of the candidate.
        today: the date by which waivers are judged. A clock that is behind does not prolong one:
            the newest evidence counts where it is later.
        expected: gate -> cells that follow from the train, where the gate itself names none.
    """
    newest = max((evidence.when[:10] for evidence in found.values()), default="")
    today = max(today, datetime.date.fromisoformat(newest)) if newest else today
    rows = [
        _row(gate, cell, waivers, _best(gate.name, cell, found, artifacts), artifacts, today)
        for gate in gates
        for cell in _cells(gate, found.values(), expected.get(gate.name, ()))
    ]
    return tuple(rows), (*_idle(waivers, rows), *_unknown(gates, found.values()))


def _cells(gate: Gate, found: Iterable[Evidence], expected: Sequence[str]) -> list[str]:
    """Return the cells that are expected, then those that were tried besides."""
    named = [cell for cell in gate.cells if cell != ANY_CELL]
    named += expected if ANY_CELL in gate.cells else ()
    tried = sorted({evidence.cell for evidence in found if evidence.gate == gate.name})
    return [*named, *(cell for cell in tried if cell not in named)] or [""]


def _best(
    gate: str, cell: str, found: Mapping[Path, Evidence], artifacts: Mapping[str, str]
) -> tuple[Path, Evidence] | None:
    """Return the newest evidence about these bytes or, where there is none, the newest of all."""
    tried = [
        (evidence.fresh(artifacts), evidence.when, str(path), path, evidence)
        for path, evidence in found.items()
        if (evidence.gate, evidence.cell) == (gate, cell)
    ]
    if not tried:
        return None
    *_, path, evidence = max(tried, key=lambda item: item[:3])
    return path, evidence


def _row(
    gate: Gate,
    cell: str,
    waivers: Sequence[Waiver],
    best: tuple[Path, Evidence] | None,
    artifacts: Mapping[str, str],
    today: datetime.date,
) -> Row:
    fixed: dict[str, Any] = {
        "gate": gate.name,
        "cell": cell,
        "blocking": gate.blocking,
        "owner": gate.owner,
    }
    if best is None:
        status, text = Status.UNVERIFIED, f"nothing was tried; run {_again(gate)}"
    else:
        path, evidence = best
        stale = not evidence.fresh(artifacts)
        status, text = Status(evidence.outcome.value), evidence.summary
        if stale:
            status, text = Status.UNVERIFIED, _why_stale(gate, evidence, artifacts)
        fixed |= {
            "stale": stale,
            "evidence": str(path),
            "digest": sha256(path),
            "candidate": evidence.candidate,
            "when": evidence.when,
            "seconds": evidence.seconds,
            "command": evidence.command,
            "details": evidence.details,
        }
    if status is Status.PASS:
        return Row(**fixed, status=status, text=text)
    waiver = next((w for w in waivers if w.gate == gate.name and w.cell in {cell, ANY_CELL}), None)
    if waiver is None:
        return Row(**fixed, status=status, text=text)
    who = f"{waiver.owner}, until {waiver.expires}: {waiver.reason}"
    if waiver.expires < today:
        return Row(**fixed, status=status, text=f"{text}. The waiver has expired ({who})")
    return Row(**fixed, status=Status.WAIVED, text=f"{who}. Without it: {text}", before=status)


def _why_stale(gate: Gate, evidence: Evidence, artifacts: Mapping[str, str]) -> str:
    differing = sorted(
        name for name, digest in evidence.artifacts.items() if artifacts.get(name) != digest
    )
    added = sorted(artifacts.keys() - evidence.artifacts.keys()) if evidence.whole else []
    what = [f"{len(differing)} of its files changed since"] if differing else []
    what += [f"{len(added)} files are new"] if added else []
    return (
        f"stale: it was {evidence.outcome} on {evidence.candidate}, and "
        f"{' and '.join(what) or 'it names no file'}; run {_again(gate)}"
    )


def _again(gate: Gate) -> str:
    """Return the command that leaves evidence of a gate."""
    step = step_of(gate)
    return f"`torchyard release {f'verify --gate {gate.name}' if step == 'verify' else step}`"


def step_of(gate: Gate) -> str:
    """Return the step of the train that leaves evidence of a gate."""
    own = not gate.session and not gate.command and gate.name in _RECORDED
    return _RECORDED[gate.name] if own else "verify"


def _idle(waivers: Sequence[Waiver], rows: Sequence[Row]) -> list[str]:
    """Name the waivers that match no row, or only green ones: each hides what comes next."""
    said = []
    for waiver in waivers:
        met = [
            row for row in rows if row.gate == waiver.gate and waiver.cell in {row.cell, ANY_CELL}
        ]
        name = f"the waiver of {waiver.gate} {waiver.cell}".rstrip()
        if not met:
            said.append(f"{name} ({waiver.owner}) matches no row; correct it in train.toml")
        elif all(row.status is Status.PASS for row in met):
            said.append(f"{name} ({waiver.owner}) is not needed any more; remove it")
    return said


def _unknown(gates: Sequence[Gate], found: Iterable[Evidence]) -> list[str]:
    names = {gate.name for gate in gates}
    strangers = sorted({evidence.gate for evidence in found} - names)
    return [f"there is evidence of {name!r}, which is no gate of train.toml" for name in strangers]

"""Evidence: a check of a candidate's files, its outcome, and the digests of the files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from torchyard.evidence import DocumentError, raised_as
from torchyard.evidence.documents import parse_json, structure
from torchyard_release._atomic import write_json_atomically
from torchyard_release._errors import ReleaseError
from torchyard_release._records._candidate import sha256
from torchyard_release._records._journal import Journal

FOLDER: Final = "evidence"
_SCHEMA: Final = 1
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Outcome(StrEnum):
    """What an attempt shows. Nothing that was not tried on this machine passes."""

    PASS = "pass"
    FAIL = "fail"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One attempt at one cell of one gate.

    Attributes:
        gate: the gate's name in train.toml.
        cell: which of its cells, such as a package or a device; empty for a gate of one cell.
        outcome: what came of it.
        summary: one sentence for the scorecard; where it did not pass, what to do next too.
        artifacts: file name -> sha256 of every file of the candidate that it was tried on.
        whole: whether it is about the whole set: then one more file makes it stale as well.
        candidate: the candidate that it was tried on, such as ``rc1``.
        commit: the commit which that candidate was built from.
        when: UTC, ISO 8601.
        seconds: how long it took.
        command: what was run, so that another can run it again.
        details: lines for whoever looks closer: a table, the end of a log.
    """

    gate: str
    cell: str
    outcome: Outcome
    summary: str
    artifacts: Mapping[str, str]
    whole: bool
    candidate: str
    commit: str
    when: str
    seconds: float
    command: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    def fresh(self, current: Mapping[str, str]) -> bool:
        """Whether it is about these very bytes: of every file it names, or of all of them.

        Args:
            current: file name -> sha256 of the candidate that is judged now.
        """
        if not self.artifacts:
            return False
        if self.whole:
            return dict(self.artifacts) == dict(current)
        return self.artifacts.items() <= current.items()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON's own types."""
        return {
            **asdict(self),
            "schema": _SCHEMA,
            "artifacts": dict(sorted(self.artifacts.items())),
        }


def write_evidence(folder: Path, evidence: Evidence) -> Path:
    """Write evidence into a folder, in the place of what the same cell had there before."""
    cell = f"--{_PLAIN.sub('-', evidence.cell)}" if evidence.cell else ""
    path = folder / f"{_PLAIN.sub('-', evidence.gate)}{cell}.json"
    write_json_atomically(path, evidence.to_json())
    return path


def record(folder: Path, journal: Journal, evidence: Evidence) -> Path:
    """Write evidence into a candidate's folder, and that it was found into the journal."""
    path = write_evidence(folder / FOLDER, evidence)
    journal.append(
        "evidence",
        gate=evidence.gate,
        cell=evidence.cell,
        outcome=evidence.outcome,
        candidate=evidence.candidate,
        sha256=sha256(path),
    )
    return path


def read_evidence(folder: Path) -> dict[Path, Evidence]:
    """Return every evidence of a folder by its file; a file that cannot be read is an error."""
    return {path: _parse(path) for path in sorted(folder.glob("*.json"))}


def _parse(path: Path) -> Evidence:
    with raised_as(
        lambda text: ReleaseError(
            f"{path}: expected evidence as `torchyard release verify` writes it, got: {text}",
            remedy="remove the file and run that gate again",
        )
    ):
        data = parse_json(path.read_bytes(), path.name)
        if not isinstance(data, dict) or data.pop("schema", None) != _SCHEMA:
            raise DocumentError(f"expected schema {_SCHEMA}")
        return structure(data, Evidence, path.name)

"""What the analyser says: kinds of fault, findings with their evidence, and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from torchyard_collectives.flight._analysis.clocks import Clocks
from torchyard_collectives.flight._history import Frame, RankHistory, Record, State

__all__ = ["CallSeen", "Finding", "Kind", "Outcome", "Report", "call_seen"]


class Kind(StrEnum):
    """A kind of fault; docs/flight-recorder.md says how each differs from the others."""

    CRASH = "crash"
    MISSING_RANK = "missing rank"
    NOT_ENTERED = "not entered"
    OP = "op mismatch"
    SHAPE = "shape mismatch"
    DTYPE = "dtype mismatch"
    ARGUMENTS = "argument mismatch"
    ORDER = "order mismatch"
    BRANCH = "data-dependent branch"
    GROUPS = "group mismatch"
    STRAGGLER = "straggler"
    DAMAGED = "damaged dump"
    BACKEND = "stuck in the backend"


class Outcome(StrEnum):
    """What the report comes to; the command's exit status follows it."""

    HEALTHY = "healthy"
    FAULT = "fault"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class CallSeen:
    """One rank's side of a finding: its call, how far it got, and where it was made."""

    rank: int
    call: str
    state: str
    site: tuple[Frame, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON's containers."""
        return {
            "rank": self.rank,
            "call": self.call,
            "state": self.state,
            "site": [str(frame) for frame in self.site],
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    Attributes:
        kind: what it is.
        ranks: who is at fault; where nobody can say which side is, the smaller one, or both.
        text: the fault in a sentence.
        group: the group's name, empty where it is about no group.
        sequence: the number of the collective in its group; None where it is about none.
        calls: what the ranks did there.
        notes: what else speaks for it, or what to do.
        certain: False where the records allow another reading, and the sources or a position on
            the stack decided.
    """

    kind: Kind
    ranks: tuple[int, ...]
    text: str
    group: str = ""
    sequence: int | None = None
    calls: tuple[CallSeen, ...] = ()
    notes: tuple[str, ...] = ()
    certain: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return JSON's containers."""
        return {
            "kind": str(self.kind),
            "ranks": list(self.ranks),
            "text": self.text,
            "group": self.group,
            "sequence": self.sequence,
            "calls": [call.to_json() for call in self.calls],
            "notes": list(self.notes),
            "certain": self.certain,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The analysis.

    Attributes:
        outcome: fault, healthy or inconclusive.
        findings: the cause first, what follows from it after.
        histories: by rank; what was analysed.
        without_dump: ranks of the job that left no dump.
        clocks: the common clock.
        problems: files that could not be read, and other limits of what was seen.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    histories: Mapping[int, RankHistory]
    without_dump: tuple[int, ...]
    clocks: Clocks
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON's containers; ``verdict`` is the first finding's kind, or the outcome."""
        first = self.findings[0] if self.findings else None
        return {
            "schema": "torchyard.flight.report",
            "version": 1,
            "outcome": str(self.outcome),
            "verdict": str(first.kind) if first else str(self.outcome),
            "ranks": list(first.ranks) if first else [],
            "findings": [finding.to_json() for finding in self.findings],
            "analysed": sorted(self.histories),
            "without_dump": list(self.without_dump),
            "clock_corrections_ns": {
                str(rank): moved for rank, moved in sorted(self.clocks.corrected.items())
            },
            "problems": list(self.problems),
        }


def call_seen(rank: int, record: Record) -> CallSeen:
    """Return a record as evidence."""
    state = str(record.state)
    if record.state is State.FAILED and record.error:
        state = f"{state}: {record.error}"
    return CallSeen(rank, record.describe(), state, record.site)

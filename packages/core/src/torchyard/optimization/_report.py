"""What was tried, what was kept, and what it brought."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Figures", "Report", "Trial", "TrialOutcome"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What a call of the example takes.

    Attributes:
        seconds: the median of some calls.
        memory: bytes of the model's tensors and of what torch allocates in a call, at most.
    """

    seconds: float
    memory: int


class TrialOutcome(StrEnum):
    """How a trial ended."""

    KEPT = "kept"
    NOT_BETTER = "not better"
    WRONG = "wrong results"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Trial:
    """An optimization, or a variant of it, and what came of it.

    Attributes:
        optimization, variant: their names; the variant's is empty where it came to none.
        outcome: how it ended.
        reason: why.
        before, after: a call without it and with it; None where it was not measured.
        first_seconds: of applying it and of the first call, compilation included; 0 where there was
            none.
        error: how far results are from the model's own, see ``tolerance`` of ``optimize``.
        alone: whether it was tried without what had been kept before.
        notes: what a user should know of it.
    """

    optimization: str
    variant: str
    outcome: TrialOutcome
    reason: str
    before: Figures | None = None
    after: Figures | None = None
    first_seconds: float = 0.0
    error: float = 0.0
    alone: bool = False
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"{self.optimization} {self.variant}".rstrip() + (" alone" if self.alone else "")
        return f"{name}: {self.outcome}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """What ``optimize`` did; ``str()`` is a text for a person, ``to_json()`` for a program.

    Attributes:
        goal: what was asked for.
        before, after: a call of the example.
        error: how far results are now from the model's own.
        first_seconds: applying what is kept, and the first call with it.
        trials: in the order in which they were made.
        seconds: that all of it took.
    """

    goal: str
    before: Figures
    after: Figures
    error: float
    first_seconds: float
    trials: tuple[Trial, ...]
    seconds: float

    @property
    def in_use(self) -> tuple[Trial, ...]:
        """The trials whose changes are in use."""
        return tuple(trial for trial in self.trials if trial.outcome is TrialOutcome.KEPT)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return asdict(self)

    def __str__(self) -> str:
        before, after = self.before, self.after
        gain = f"{before.seconds / after.seconds:.2f} times as fast"
        lines = [
            f"a call: {_time(before.seconds)} before, {_time(after.seconds)} after, {gain}",
            f"memory: {_size(before.memory)} before, {_size(after.memory)} after",
            f"results: {self.error:.1e} from the model's own",
            f"first call: {_time(self.first_seconds)}; trials: {_time(self.seconds)}",
        ]
        lines += [str(trial) for trial in self.trials]
        lines += [f"{trial.optimization}: {note}" for trial in self.in_use for note in trial.notes]
        return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _size(count: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"

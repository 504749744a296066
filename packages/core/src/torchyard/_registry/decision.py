"""Decisions: which implementation computes a request, and the whole trace of why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from torchyard._contracts.contract import Request
from torchyard._contracts.implementation import Implementation, Verdict


class Source(StrEnum):
    """Who decided, strongest first."""

    ARGUMENT = "argument"
    CONTEXT = "context"
    ENVIRONMENT = "environment"
    LOCK = "lock"
    TUNED = "tuned"
    ORDER = "order"


class Outcome(StrEnum):
    """The outcome of one candidate."""

    CHOSEN = "chosen"
    REFUSED = "refused"
    NOT_NEEDED = "not needed"
    NOT_LISTED = "not listed"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One implementation's part in a decision.

    Attributes:
        name: the implementation, or ``<plugin>.*`` for a plugin that offers nothing now.
        outcome: whether it was chosen, and if not, why not.
        verdict: its own answer; for ``<plugin>.*`` the plugin's state and reason.
    """

    name: str
    outcome: Outcome
    verdict: Verdict


def _nobody() -> tuple[Candidate, ...]:
    return ()


@dataclass(frozen=True)
class Decision:
    """Which implementation computes a request, and why.

    A call needs the choice alone, so the verdicts of the candidates behind the chosen one are asked
    for when :attr:`trace` is first read. Verdicts are pure: asked later, they are the same.

    Attributes:
        contract: ``op/version``.
        request: the request that was decided.
        chosen: the implementation; None where none supports the request.
        source: who decided.
        considered: the candidates up to the chosen one, in the order of the lists.
        others: returns the candidates behind it.
    """

    contract: str
    request: Request
    chosen: Implementation | None
    source: Source
    considered: tuple[Candidate, ...]
    others: Callable[[], tuple[Candidate, ...]] = field(default=_nobody, repr=False)

    @cached_property
    def trace(self) -> tuple[Candidate, ...]:
        """Every candidate, in the order of the lists."""
        return (*self.considered, *self.others())

    def __eq__(self, other: object) -> bool:
        """Return whether the other decision says the same, its whole trace included."""
        if not isinstance(other, Decision):
            return NotImplemented
        return self._identity() == other._identity() and self.trace == other.trace

    def __hash__(self) -> int:
        """Return a hash without the trace, which need not be known for it."""
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return self.contract, self.request, self.chosen, self.source

    @property
    def name(self) -> str:
        """The chosen implementation's name, or the empty string."""
        return "" if self.chosen is None else self.chosen.name

    def skipped(self) -> tuple[Candidate, ...]:
        """Return the candidates that stood in front of the chosen one and refused."""
        candidates = self.trace if self.chosen is None else self.considered
        return tuple(item for item in candidates if item.outcome is Outcome.REFUSED)

    def render(self) -> str:
        """Return the decision as text: a headline, then a line per candidate."""
        headline = (
            f"{self.contract} on {self.request.device}: "
            f"{self.name or 'no implementation'} (decided by {self.source})"
        )
        lines = [headline, f"  request: {self.request}"]
        width = max((len(candidate.name) for candidate in self.trace), default=0)
        for candidate in self.trace:
            lines.append(
                f"  {candidate.name:<{width}}  {candidate.outcome:<10}  {_words(candidate.verdict)}"
            )
            if candidate.verdict.hint:
                lines.append(f"  {'':<{width}}  {'':<10}  hint: {candidate.verdict.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the decision as JSON-ready data."""
        return {
            "contract": self.contract,
            "request": request_fields(self.request),
            "bucket": self.request.bucket(),
            "chosen": self.name or None,
            "source": str(self.source),
            "trace": [
                {
                    "name": candidate.name,
                    "outcome": str(candidate.outcome),
                    "supported": candidate.verdict.supported,
                    "code": candidate.verdict.code and str(candidate.verdict.code),
                    "text": candidate.verdict.text,
                    "hint": candidate.verdict.hint,
                }
                for candidate in self.trace
            ],
        }


def request_fields(request: object) -> dict[str, Any]:
    """Return a request's fields as JSON-ready data."""
    if dataclasses.is_dataclass(request) and not isinstance(request, type):
        return {
            field.name: _plain(getattr(request, field.name))
            for field in dataclasses.fields(request)
        }
    return {"text": str(request)}


def _plain(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list | frozenset | set):
        return [_plain(item) for item in value]
    return str(value)


def _words(verdict: Verdict) -> str:
    if verdict.code is None:
        return verdict.text or "supported"
    return f"{verdict.code}: {verdict.text}"

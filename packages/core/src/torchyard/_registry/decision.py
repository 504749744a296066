"""Decisions: which implementation computes a request, and the whole trace of why."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
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


@dataclass(frozen=True, slots=True)
class Decision:
    """Which implementation computes a request, and why.

    Attributes:
        contract: ``op/version``.
        request: the request that was decided.
        chosen: the implementation; None where none supports the request.
        source: who decided.
        trace: every candidate, in the order of the lists.
    """

    contract: str
    request: Request
    chosen: Implementation | None
    source: Source
    trace: tuple[Candidate, ...]

    @property
    def name(self) -> str:
        """The chosen implementation's name, or the empty string."""
        return "" if self.chosen is None else self.chosen.name

    def skipped(self) -> tuple[Candidate, ...]:
        """Return the candidates that stood in front of the chosen one and refused."""
        skipped = []
        for candidate in self.trace:
            if candidate.outcome is Outcome.CHOSEN:
                break
            if candidate.outcome is Outcome.REFUSED:
                skipped.append(candidate)
        return tuple(skipped)

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

"""Laws of verdicts: correct acceptance, refusals with a reason, pure answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from torchyard import ReasonCode, Request, UnsupportedError, registry
from torchyard_conformance._kernels._case import Case
from torchyard_conformance._kernels._kernel import Kernel
from torchyard_conformance._outcome import NotSupported, Violated
from torchyard_conformance._trials._acceptance import accepts_some

__all__ = ["accepts_something", "refuses_when_demanded", "refuses_with_a_reason"]

# Not the implementation's own reasons: the registry gives them.
_FOREIGN: Final = frozenset(
    {
        ReasonCode.BLOCKED,
        ReasonCode.MISSING,
        ReasonCode.NOT_LISTED,
        ReasonCode.PLUGIN,
        ReasonCode.SUPPORTS_RAISED,
    }
)
# Such that most implementations lack one.
_MORE: Final[tuple[dict[str, Any], ...]] = (
    {"dtype": "complex64"},
    {"dtype": "bool"},
    {"dtype": "float64"},
    {"deterministic": True},
)


def accepts_something(kernel: Kernel, cases: Iterable[Case]) -> dict[str, float]:
    """Count what the cases' requests get."""
    return accepts_some(kernel.verdict(request) for _, request in _requests(kernel, cases))


def refuses_with_a_reason(kernel: Kernel, cases: Iterable[Case]) -> dict[str, float]:
    """Look at every refusal, and ask again in the opposite order."""
    requests = _requests(kernel, cases)
    first = [kernel.verdict(request) for _, request in requests]
    second = [kernel.verdict(request) for _, request in reversed(requests)]
    refused = 0
    for (name, _), verdict, again in zip(requests, first, reversed(second), strict=True):
        if verdict != again:
            raise Violated(f"{name}: answers {verdict.text!r}, and {again.text!r} when asked again")
        if verdict.supported:
            continue
        refused += 1
        if verdict.code in _FOREIGN:
            raise Violated(f"{name}: {verdict.code}: {verdict.text}")
        if not verdict.text.strip():
            raise Violated(f"{name}: {verdict.code} without a text")
    return {"refused": float(refused)}


def refuses_when_demanded(kernel: Kernel, cases: Iterable[Case]) -> dict[str, float]:
    """Demand the implementation by name for what it refuses: an error with its own reason."""
    forced = 0
    for name, request in _requests(kernel, cases):
        verdict = kernel.verdict(request)
        if verdict.supported:
            continue
        forced += 1
        try:
            registry().resolve(kernel.contract, request, use=kernel.name)
        except UnsupportedError as error:
            own = [item for item in error.decision.trace if item.name == kernel.name]
            if not own or own[0].verdict.code != verdict.code:
                said = own[0].verdict.code if own else "nothing"
                raise Violated(
                    f"{name}: refuses with {verdict.code}, and with {said} when demanded"
                ) from error
        else:
            raise Violated(f"{name}: refuses with {verdict.code}, and computes when demanded")
    if not forced:
        raise NotSupported("refuses nothing of the grid")
    return {"forced": float(forced)}


def _requests(kernel: Kernel, cases: Iterable[Case]) -> list[tuple[str, Request]]:
    """Return the requests of all cases, and for the first one some that few support."""
    found: list[tuple[str, Any]] = [
        (case.name, case.request(case.given(kernel.device))) for case in cases
    ]
    plain = found[0][1]
    found += [
        (str(change), replace(plain, **change))
        for change in _MORE
        if all(hasattr(plain, name) for name in change)
    ]
    return found

"""Laws of verdicts: correct refusals, pure and cheap answers, the same for fake tensors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from torch import Tensor

from torchyard import ReasonCode, UnsupportedError, Verdict, registry
from torchyard_attention.cases import Case
from torchyard_attention.contract import AttentionCall, AttentionRequest
from torchyard_attention.testing import request_of
from torchyard_conformance._attention._cases import GRID
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._attention._state import changed_state, process_state
from torchyard_conformance._outcome import NotSupported, Violated
from torchyard_conformance._torch_compat import fake_tensor_mode
from torchyard_conformance._trials._acceptance import accepts_some

__all__ = [
    "accepts_something",
    "answers_cheaply",
    "answers_for_fakes",
    "answers_purely",
    "refuses_when_demanded",
    "refuses_with_a_reason",
]

# What a call without a cached decision may wait for one candidate. A median of a few microseconds
# is usual; the bound is for laptops under load.
_MICROSECONDS: Final = 1000.0
# Not the implementation's own reasons: the registry gives them.
_FOREIGN: Final = {
    ReasonCode.BLOCKED,
    ReasonCode.MISSING,
    ReasonCode.NOT_LISTED,
    ReasonCode.PLUGIN,
    ReasonCode.SUPPORTS_RAISED,
}


def accepts_something(kernel: Kernel) -> dict[str, float]:
    """Count what the grid's requests get."""
    return accepts_some(kernel.verdict(request) for _, request in _requests(kernel))


def refuses_with_a_reason(kernel: Kernel) -> dict[str, float]:
    """Look at every refusal of the grid, and of requests that nobody supports."""
    refused = 0
    plain = next(request for _, request in _requests(kernel))
    impossible = [(dtype, replace(plain, dtype=dtype)) for dtype in ("int8", "complex64")]
    for name, request in [*_requests(kernel), *impossible]:
        verdict = kernel.verdict(request)
        if verdict.supported and (name, request) in impossible:
            raise Violated(f"accepts what nobody can compute: {name}")
        if verdict.supported:
            continue
        refused += 1
        _check_refusal(name, verdict)
    return {"refused": float(refused)}


def _check_refusal(name: str, verdict: Verdict) -> None:
    if verdict.code in _FOREIGN:
        raise Violated(f"{name}: {verdict.code}: {verdict.text}")
    if not verdict.text.strip():
        raise Violated(f"{name}: {verdict.code} without a text")


def refuses_when_demanded(kernel: Kernel) -> dict[str, float]:
    """Demand the implementation by name for what it refuses: an error with its own reason."""
    forced = 0
    for name, request in _requests(kernel):
        verdict = kernel.verdict(request)
        if verdict.supported:
            continue
        forced += 1
        try:
            registry().resolve(kernel.implementation.contract, request, use=kernel.name)
        except UnsupportedError as error:
            own = [item for item in error.decision.trace if item.name == kernel.name]
            if own and own[0].verdict.code != verdict.code:
                raise Violated(
                    f"{name}: refuses with {verdict.code}, and with {own[0].verdict.code} when "
                    "demanded"
                ) from error
        else:
            raise Violated(f"{name}: refuses with {verdict.code}, and computes when demanded")
    if not forced:
        raise NotSupported("refuses nothing of the grid")
    return {"forced": float(forced)}


def answers_purely(kernel: Kernel) -> dict[str, float]:
    """Ask everything twice, the second time in the opposite order."""
    requests = list(_requests(kernel))
    before = process_state()
    first = [kernel.verdict(request) for _, request in requests]
    changed = changed_state(before)
    if changed:
        raise Violated(f"supports() changes {changed}")
    second = [kernel.verdict(request) for _, request in reversed(requests)]
    for (name, _), one, other in zip(requests, first, reversed(second), strict=True):
        if one != other:
            raise Violated(f"{name}: answers {_words(one)}, and {_words(other)} when asked again")
    return {"requests": float(len(requests))}


def answers_cheaply(kernel: Kernel) -> dict[str, float]:
    """Time every answer; what is first asked may prepare something, so the median counts."""
    times = []
    for _, request in _requests(kernel):
        start = time.perf_counter()
        kernel.verdict(request)
        times.append((time.perf_counter() - start) * 1e6)
    median = statistics.median(times)
    if median > _MICROSECONDS:
        raise Violated(
            f"supports() takes {median:.0f} us in the median, at most {_MICROSECONDS:.0f} are fine"
        )
    return {"median_us": median, "greatest_us": max(times)}


def answers_for_fakes(kernel: Kernel) -> dict[str, float]:
    """Ask for real tensors, then for fake ones while torch traces."""
    asked = 0
    mode = fake_tensor_mode()
    for name, case in GRID.items():
        call = case.call(kernel.device)
        fake = _faked(call, mode)
        with mode:
            imagined = _describe(kernel, case, fake)
            answer = kernel.verdict(imagined)
        real = _describe(kernel, case, call)
        if imagined != real:
            raise Violated(f"{name}: fake tensors ask for {imagined}, real ones for {real}")
        if answer != kernel.verdict(real):
            raise Violated(
                f"{name}: answers {_words(kernel.verdict(real))} for real tensors, and "
                f"{_words(answer)} for fake ones"
            )
        asked += 1
    return {"requests": float(asked)}


def _words(verdict: Verdict) -> str:
    return "yes" if verdict.supported else f"{verdict.code} ({verdict.text})"


def _requests(kernel: Kernel) -> Iterator[tuple[str, AttentionRequest]]:
    return iter(_known_requests(kernel.device, kernel.is_backward))


@lru_cache(maxsize=8)
def _known_requests(device: str, grad: bool) -> tuple[tuple[str, AttentionRequest], ...]:
    """Return the grid's requests, and for the first of a kind some that no small tensor asks."""
    found = []
    for name, case in GRID.items():
        call = case.call(device)
        found.append((name, request_of(call, causal=case.mask == "causal", grad=grad)))
    plain = found[0][1]
    changes: list[dict[str, Any]] = [
        {"deterministic": True},
        {"q_length": 1 << 20, "kv_length": 1 << 20},
        {"head_dim": 1 << 14, "value_dim": 1 << 14},
        {"batch": 1 << 16},
        {"unit_stride": False},
    ]
    changes += [] if grad else [{"page_size": 16}, {"page_size": 16, "batch": 1}, {"grad": True}]
    found += [(str(change), replace(plain, **change)) for change in changes]
    return tuple(found)


def _describe(kernel: Kernel, case: Case, call: AttentionCall) -> AttentionRequest:
    return case.request(call, grad=kernel.is_backward)


def _faked(call: AttentionCall, mode: Any) -> AttentionCall:
    def fake(tensor: Tensor) -> Tensor:
        made: Tensor = mode.from_tensor(tensor)
        return made

    mod: Any = call.score_mod
    if mod is not None:
        mod = replace(mod, captured=tuple(fake(tensor) for tensor in mod.captured))
    return replace(
        call, query=fake(call.query), key=fake(call.key), value=fake(call.value), score_mod=mod
    )

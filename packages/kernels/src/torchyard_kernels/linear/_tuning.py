"""max_autotune: measure which implementation computes a call fastest, and choose it afterwards.

Each candidate alternates with the present choice, and replaces it only if it is faster in nearly
every turn: the load of other programs affects both alike.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final

import torch
from torch import Tensor

from torchyard import ContractId, ReasonCode, Source, arguments, registry
from torchyard_kernels.linear.contract import LINEAR, LinearCall, LinearRequest, Packed

__all__ = ["Tuned", "active", "max_autotune", "tune"]

# The gain, and the share of turns won, for which a candidate replaces the present choice.
_GAIN: Final = 1.03
_WINS: Final = 0.8
_LEAST_TURNS: Final = 5
_MOST_TURNS: Final = 60
# The weights of a model come from memory: copies alternate, more than the caches hold.
_BEYOND_CACHES: Final = 128 << 20
_MOST_COPIES: Final = 64


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was measured for one bucket of calls.

    Attributes:
        bucket: ``LinearRequest.bucket()``.
        chosen: the implementation that computes it from now on.
        before: the previous choice, by the lists or by an earlier measurement.
        milliseconds: the median of each implementation that was measured.
        first: the seconds of the first call of each, which may compile.
        refused: why others were not measured: the error, or the size of theirs.
    """

    bucket: str
    chosen: str
    before: str
    milliseconds: dict[str, float]
    first: dict[str, float]
    refused: dict[str, str]


@dataclass(slots=True)
class _Session:
    seconds: float
    again: bool
    found: list[Tuned] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


_session: ContextVar[_Session | None] = ContextVar("torchyard_kernels_max_autotune", default=None)
active = _session.get


@contextmanager
def max_autotune(*, seconds: float = 1.0, again: bool = False) -> Iterator[list[Tuned]]:
    """Measure the calls of :func:`linear`, ``matmul`` and ``bmm`` inside of a ``with`` block.

    The first call of each bucket of requests is computed by every implementation that supports it,
    alternately: ours, torch's own operators, and torch.compile with its autotuning. One that is
    clearly the fastest computes the bucket from then on, in this process and in later ones: the
    choice is stored in the user's cache folder, by machine and versions; processes write it under a
    lock. ``torchyard explain linear`` shows such a choice as decided by ``tuned``, and
    ``TORCHYARD_TUNED=off`` ignores all. An implementation that is demanded or locked is not
    measured against others.

    Args:
        seconds: how long to measure each bucket, about, without first calls.
        again: whether to measure buckets again that were measured before.

    Yields:
        A list that gets a :class:`Tuned` for each bucket that was measured.

    Measures with the number of threads that torch has now. Calls inside of a compiled graph are
    measured when it runs.
    """
    seconds = arguments.number("max_autotune", "seconds", seconds, above=0)
    again = arguments.boolean("max_autotune", "again", again)
    session = _Session(seconds, again)
    token = _session.set(session)
    try:
        yield session.found
    finally:
        _session.reset(token)


def tune(call: LinearCall, request: LinearRequest) -> None:
    """Measure a call inside of :func:`max_autotune`, once per bucket."""
    session = _session.get()
    if session is None or request.bucket() in session.seen:
        return
    session.seen.add(request.bucket())
    decision = registry().decide(LINEAR, request)
    measured_before = decision.source is Source.TUNED
    if decision.source is not Source.ORDER and not (measured_before and session.again):
        return
    # A candidate's own calls are not measured.
    token = _session.set(None)
    try:
        session.found.append(_measured(call, request, decision.name, session.seconds))
    finally:
        _session.reset(token)


def _measured(call: LinearCall, request: LinearRequest, before: str, seconds: float) -> Tuned:
    calls = [replace(call, weight=weight) for weight in _copies(call)]
    runs, first, refused = _runs(calls[0], request, before)
    times = _turns(calls, runs, seconds)
    chosen, least = before, 1.0 / _GAIN
    for name, mine in times.items():
        ratios = [a / b for a, b in zip(mine, times[before], strict=True)]
        wins = sum(ratio < 1.0 for ratio in ratios) / len(ratios)
        if wins >= _WINS and statistics.median(ratios) <= least:
            chosen, least = name, statistics.median(ratios)
    milliseconds = {name: 1e3 * statistics.median(mine) for name, mine in times.items()}
    registry().record_fastest(
        LINEAR,
        request,
        chosen,
        {
            "milliseconds": {name: round(value, 4) for name, value in milliseconds.items()},
            "threads": torch.get_num_threads(),
            "date": date.today().isoformat(),
        },
    )
    return Tuned(request.bucket(), chosen, before, milliseconds, first, refused)


def _runs(
    call: LinearCall, request: LinearRequest, before: str
) -> tuple[dict[str, Callable[[LinearCall], Tensor]], dict[str, float], dict[str, str]]:
    """Return the implementations with right results, the present choice first."""
    runs: dict[str, Callable[[LinearCall], Tensor]] = {}
    first, refused = {}, {}
    names = [name for name in _candidates(request) if name != before]
    expected: Tensor | None = None
    for name in (before, *names):
        start = time.perf_counter()
        try:
            run = registry().resolve(LINEAR, request, use=name)
            out = run(call).double()
        except Exception as error:  # such as a compiler's; the report shows it
            if expected is None:
                raise
            refused[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            continue
        first[name] = time.perf_counter() - start
        expected = out if expected is None else expected
        wrong, allowed = _distance(out, expected), _allowed(call)
        if not wrong <= allowed:
            refused[name] = f"its result is {wrong:.1e} away, {allowed:.1e} is allowed"
            continue
        runs[name] = run
    return runs, first, refused


def _candidates(request: LinearRequest) -> list[str]:
    """Return the implementations that support a request, listed or not, except the last resort."""
    last = registry().order(ContractId.parse(LINEAR), request.device)[-1]
    return [
        item.name
        for item in registry().decide(LINEAR, request).trace
        if item.name != last
        and (item.verdict.supported or item.verdict.code is ReasonCode.NOT_LISTED)
    ]


def _distance(out: Tensor, expected: Tensor) -> float:
    size = float(expected.square().mean().sqrt()) or 1.0
    return float((out - expected).square().mean().sqrt()) / size


def _allowed(call: LinearCall) -> float:
    """Return the largest difference of two results: roundings of the dtype and of float32 sums."""
    depth = max(1, call.x.shape[-1])
    wide = torch.finfo(torch.float32).eps
    return 16 * torch.finfo(call.x.dtype).eps + 8 * math.sqrt(depth) * wide


def _turns(
    calls: list[LinearCall], runs: dict[str, Callable[[LinearCall], Tensor]], seconds: float
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    start = time.perf_counter()
    for turn in range(_MOST_TURNS):
        if turn >= _LEAST_TURNS and time.perf_counter() - start > seconds:
            break
        # The second finds warmer caches, so the order alternates too.
        for name in order if turn % 2 else reversed(order):
            call = calls[(turn * len(order) + order.index(name)) % len(calls)]
            begin = time.perf_counter()
            runs[name](call)
            times[name].append(time.perf_counter() - begin)
    return times


def _copies(call: LinearCall) -> list[Tensor | Packed]:
    weight = call.weight
    tensors = weight.tensors if isinstance(weight, Packed) else (weight,)
    size = max(1, sum(tensor.nbytes for tensor in tensors))
    count = min(_MOST_COPIES, math.ceil(_BEYOND_CACHES / size))
    if isinstance(weight, Packed):
        more: list[Tensor | Packed] = [
            Packed(weight.spec, tuple([tensor.clone() for tensor in weight.tensors]))
            for _ in range(count - 1)
        ]
    else:
        more = [weight.clone() for _ in range(count - 1)]
    return [weight, *more]

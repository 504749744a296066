"""Linear layers of 4096 x 4096, weights from memory: plain and packed, beside torch's linear."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

from benchmarks.measuring.findings import Finding, at_least
from benchmarks.measuring.limits import Limits, Probe
from benchmarks.measuring.measure import Effort, WrongResultError
from torchyard_kernels import PackedWeight, linear

__all__ = ["check", "measure_linear"]

_WIDTH: Final = 4096
# Calls in a row must not find their weight in a cache.
_BEYOND_CACHES: Final = 256 << 20
# Two probes of the memory that differ by more say nothing.
_AGREE: Final = 1.15
_ROWS: Final = (1, 4, 16, 128, 1024)
_PLAIN: Final = "torchyard, plain"
_PACKED: Final = "torchyard, packed"
_TORCH: Final = "torch linear"
# (dtype, rows, contestant) -> how many times torch's speed is asked.
_TIMES: Final = {
    **{(torch.float16, rows, _PACKED): 4.0 for rows in (4, 16, 128, 1024)},
    **{(torch.float16, rows, _PLAIN): 4.0 for rows in (128, 1024)},
    **{(torch.bfloat16, rows, _PACKED): 1.2 for rows in (1, 4, 16)},
    **{(torch.bfloat16, rows, _PACKED): 1.0 for rows in (128, 1024)},
    **{(torch.bfloat16, rows, _PLAIN): 1.0 for rows in _ROWS},
    **{(torch.float32, rows, who): 1.0 for rows in _ROWS for who in (_PLAIN, _PACKED)},
}
# Likewise, the share of the machine's limit: of reading for one row, of products for many.
_SHARES: Final = {
    (torch.float16, rows, who): 0.85 for rows in (1, 128, 1024) for who in (_PLAIN, _PACKED)
}
_READ_ROWS: Final = 16

_Way = Callable[[Tensor, int], Tensor]


def measure_linear(
    limits: Limits,
    probe: Probe,
    effort: Effort,
    *,
    quick: bool,
    progress: Callable[[str], None],
) -> list[Finding]:
    """Time every number of rows in every dtype; contestants take turns.

    Args:
        limits: the machine's, of this run.
        probe: measures the memory before and after what it limits.
        effort: how often.
        quick: a small weight, which caches hold: the figures mean nothing.
        progress: receives the name of each step.

    Raises:
        WrongResultError: a result is wrong.
    """
    width = 256 if quick else _WIDTH
    findings: list[Finding] = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        weights, ways = _ways(dtype, width, 2 if quick else _BEYOND_CACHES)
        for rows in _ROWS:
            name = f"{str(dtype)[6:]}, {rows} {'row' if rows == 1 else 'rows'}"
            progress(name)
            x = torch.randn(rows, width).to(dtype)
            for who, way in ways.items():
                error = check(name, who, way(x, 0), x, weights[0])
                findings.append(Finding(name, who, "error over the result's own size", error))
            findings += _timed(name, x, len(weights), ways, limits, probe, effort)
    return findings


def _ways(dtype: torch.dtype, width: int, room: int) -> tuple[list[Tensor], dict[str, _Way]]:
    count = max(2, math.ceil(room / (width * width * dtype.itemsize)))
    weights = [torch.randn(width, width).to(dtype) for _ in range(count)]
    packed = [PackedWeight(weight) for weight in weights]
    return weights, {
        _PLAIN: lambda x, i: linear(x, weights[i]),
        _PACKED: lambda x, i: linear(x, packed[i]),
        _TORCH: lambda x, i: torch.nn.functional.linear(x, weights[i]),
    }


def check(name: str, who: str, out: Tensor, x: Tensor, weight: Tensor) -> float:
    """Return the root mean square of the error, relative to the result's own.

    Raises:
        WrongResultError: it is more than one rounding of the result and of float32 sums explain.
    """
    # Some outputs stand for all: a product in float64 of all of them would take minutes.
    some = slice(0, None, max(1, weight.shape[0] // 128))
    exact = x.double() @ weight[some].double().T
    size = float(exact.square().mean().sqrt())
    error = float((out[:, some].double() - exact).square().mean().sqrt()) / size
    allowed = torch.finfo(x.dtype).eps
    allowed += 4 * math.sqrt(x.shape[1]) * torch.finfo(torch.float32).eps
    if not error <= allowed:
        raise WrongResultError(
            f"linear, {name}, {who}: expected within {allowed:.2e} of float64, got {error:.2e}"
        )
    return error


def _timed(
    name: str,
    x: Tensor,
    weights: int,
    ways: dict[str, _Way],
    limits: Limits,
    probe: Probe,
    effort: Effort,
) -> Iterator[Finding]:
    rows, width = x.shape
    reads = rows <= _READ_ROWS
    threads = torch.get_num_threads()
    before = probe.read_bytes(threads) if reads else None
    seconds = _turns(x, weights, ways, effort)
    after = probe.read_bytes(threads) if reads else None
    limit, work = limits.flops(x.dtype), 2.0 * rows * width * width
    kind = "share of the peak"
    if reads:
        agree = before and after and max(before, after) <= _AGREE * min(before, after)
        limit = (before + after) / 2 if agree and before and after else None
        work, kind = width * width * x.dtype.itemsize, "share of the read bandwidth"
    if reads and limit is not None:
        # Nothing that reads the weight can be faster than the memory gives it.
        best = statistics.median(seconds[_TORCH]) * limit / work
        yield Finding(name, "the memory's limit", "times torch's speed", best)
    for who, times in seconds.items():
        median = statistics.median(times)
        yield Finding(name, who, "milliseconds", median * 1e3)
        if who != _TORCH:
            ratio = statistics.median(
                theirs / mine for theirs, mine in zip(seconds[_TORCH], times, strict=True)
            )
            yield _asked(name, who, "times torch's speed", ratio, _TIMES.get((x.dtype, rows, who)))
        if limit is None:
            yield Finding(name, who, f"UNVERIFIED: {kind}: the probes differ, or are none", None)
        else:
            share = work / median / limit
            yield _asked(name, who, kind, share, _SHARES.get((x.dtype, rows, who)))


def _asked(case: str, who: str, quantity: str, value: float, asked: float | None) -> Finding:
    if asked is None:
        return Finding(case, who, quantity, value)
    return at_least(case, who, quantity, value, asked)


def _turns(
    x: Tensor, weights: int, ways: dict[str, _Way], effort: Effort
) -> dict[str, list[float]]:
    numbers = itertools.cycle(range(weights))
    seconds: dict[str, list[float]] = {who: [] for who in ways}
    start = time.perf_counter()
    for done in range(effort.rounds + 1):
        if done > 5 and time.perf_counter() - start > effort.seconds:
            break
        for who, way in ways.items():
            number = next(numbers)
            begin = time.perf_counter()
            way(x, number)
            # The first round wakes threads and fills working memory.
            if done:
                seconds[who].append(time.perf_counter() - begin)
    return seconds

"""Judge every contestant's results, then its time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.cases import Case
from benchmarks.contestants import OURS, Attention, contestants, ruler
from benchmarks.limits import Limits

__all__ = ["Row", "WrongResultError", "measure"]


class WrongResultError(AssertionError):
    """A contestant's result is further from float64 than its arithmetic explains."""


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant on one case.

    Attributes:
        case: the case's name.
        contestant: who.
        milliseconds: the median over rounds; each round runs every contestant once.
        spread: the interquartile range of the rounds, in milliseconds.
        times_ours: the median over rounds of this contestant's time over ours in the same round.
        share: the share of the machine's limit that was reached: of its products per second or,
            for one query per head, of its memory's bytes per second. None for training, and where
            the limit could not be measured.
        error: the largest absolute difference from float64, over all outputs.
    """

    case: str
    contestant: str
    milliseconds: float
    spread: float
    times_ours: float
    share: float | None
    error: float


def measure(case: Case, limits: Limits, *, rounds: int) -> list[Row]:
    """Return a row per contestant, ours first.

    Raises:
        WrongResultError: a result is wrong; then nothing of the case is timed.
    """
    truth = _results(case, ruler(case), torch.float64)
    competing = contestants(case)
    # eps of the inputs' dtype, times the growth of a sum of as many rounded terms as there are
    # keys, on numbers of the size that the case has.
    kv_length = case.shape[4]
    size = max(float(tensor.abs().max()) for tensor in truth)
    allowed = 4 * torch.finfo(case.dtype).eps * math.sqrt(kv_length) * size
    errors = {}
    for name, attend in competing.items():
        errors[name] = _largest_difference(_results(case, attend, case.dtype), truth)
        if not errors[name] <= allowed:
            raise WrongResultError(
                f"{case.name}, {name}: expected within {allowed:.2e} of float64, got "
                f"{errors[name]:.2e}"
            )
    seconds: dict[str, list[float]] = {name: [] for name in competing}
    runs = {name: _timed(case, attend) for name, attend in competing.items()}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(run())
    return [
        Row(
            case.name,
            name,
            statistics.median(times) * 1e3,
            _interquartile(times) * 1e3,
            statistics.median(
                theirs / ours for theirs, ours in zip(times, seconds[OURS], strict=True)
            ),
            _share(case, limits, min(times)),
            errors[name],
        )
        for name, times in seconds.items()
    ]


def _share(case: Case, limits: Limits, seconds: float) -> float | None:
    """Return the share of the limit in the best round, as the limit is that of the best slice."""
    if case.training:
        return None
    if case.shape[3] == 1:
        return limits.read_bytes and case.kv_bytes() / seconds / limits.read_bytes
    flops = limits.flops(case.dtype)
    return flops and case.flops() / seconds / flops


def _results(case: Case, attend: Attention, dtype: torch.dtype) -> list[Tensor]:
    inputs = case.inputs(dtype, grad=case.training)
    out = attend(*inputs)
    if not case.training:
        return [out]
    return [out.detach(), *torch.autograd.grad(out.sum(), inputs)]


def _largest_difference(found: list[Tensor], truth: list[Tensor]) -> float:
    return max(
        float((mine.double() - right).abs().max()) for mine, right in zip(found, truth, strict=True)
    )


def _timed(case: Case, attend: Attention) -> Callable[[], float]:
    inputs = case.inputs(case.dtype, grad=case.training)

    def run() -> float:
        start = time.perf_counter()
        out = attend(*inputs)
        if case.training:
            torch.autograd.grad(out.sum(), inputs)
        return time.perf_counter() - start

    return run


def _interquartile(times: list[float]) -> float:
    if len(times) < 4:
        return max(times) - min(times)
    lower, _, upper = statistics.quantiles(times, n=4)
    return upper - lower

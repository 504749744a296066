"""Judge every contestant's results, then its time."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from benchmarks.measuring.cases import Bar, Case, Part, Rival
from benchmarks.measuring.contestants import Contestant, contestants, ruler
from benchmarks.measuring.limits import Limits, Probe

__all__ = ["Effort", "Row", "WrongResultError", "judge", "measure", "met", "timed_once"]

# Decoding reads keys and values from memory: calls in a row must not find them in a cache.
_BEYOND_CACHES: Final = 512 << 20
# A run shorter than this is repeated, and its time divided: the clock counts, and so does waking
# threads that slept while another contestant ran.
_SHORTEST: Final = 5e-3
# A share of the arithmetic that no run of right results can have; clocks vary by less.
_IMPOSSIBLE: Final = 1.03


class WrongResultError(AssertionError):
    """A contestant's result is further from float64 than its arithmetic explains."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How often contestants run.

    Attributes:
        rounds: runs of each contestant, at most.
        seconds: when to stop before; at least five rounds are run.
    """

    rounds: int = 20
    seconds: float = 6.0


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant on one case.

    Attributes:
        case: the case's name.
        contestant: who.
        computed_by: the contestant's implementation.
        milliseconds: the median over rounds; each round runs every contestant once.
        spread: the interquartile range of the rounds, in milliseconds.
        times_ours: the median over rounds of this contestant's time over ours in the same round.
        share: the share of the machine's limit in the median round: of its products per second,
            or of its memory's bytes per second where that limits the call. None where the limit
            could not be measured.
        best_share: likewise in the best round.
        bytes_per_second: of key and value, where memory limits the call.
        limit: what the share is of, per second.
        error: the largest difference from float64 over the root mean square of its tensor, over
            out and, in training, all gradients.
    """

    case: str
    contestant: str
    computed_by: str
    milliseconds: float
    spread: float
    times_ours: float
    share: float | None
    best_share: float | None
    bytes_per_second: float | None
    limit: float | None
    error: float


def met(bar: Bar, rows: list[Row]) -> tuple[float | None, bool | None]:
    """Return what of a bar ours reached, and whether that is enough; None where not measured.

    A share of the processor's limit that is above it says that the limit was measured too low.
    """
    ours = rows[0]
    reached = ours.share
    if bar.rival is not Rival.LIMIT:
        times = [row.times_ours for row in rows if row.contestant.startswith(bar.rival)]
        reached = min(times, default=None)
    elif ours.bytes_per_second is None and (ours.best_share or 0.0) > _IMPOSSIBLE:
        return reached, None
    return reached, None if reached is None else reached >= bar.at_least


def measure(
    case: Case,
    limits: Limits,
    probe: Probe | None,
    effort: Effort,
    *,
    demand: str | None = None,
    drop: Callable[[WrongResultError], None],
) -> list[Row]:
    """Return a row per contestant, ours first.

    Args:
        case: the call.
        limits: the machine's, of this run.
        probe: takes its turn in each round of a case that memory limits, and reads the keys and
            values that the contestants read; without it the limits' own bandwidth counts.
        effort: how often contestants run.
        demand: the implementation that ours must be.
        drop: receives each rival whose result is wrong, which is then not timed.

    Raises:
        WrongResultError: our result is wrong; then nothing of the case is timed.
    """
    ours_first = contestants(case, demand)
    competing, errors = ours_first[:1], judge(case, ours_first[:1])
    for rival in ours_first[1:]:
        try:
            errors += judge(case, [rival])
        except WrongResultError as error:
            drop(error)
        else:
            competing.append(rival)
    seconds, reading = _timed(case, competing, effort, probe)
    work = case.kv_bytes() if case.decoding else case.flops()
    if probe is not None and any(bar.rival is Rival.LIMIT for bar in case.bars):
        # Once more, beside the case: a processor that was elsewhere in the run's first moments
        # would make everything look fast.
        limits = limits.raised(probe.arithmetic(torch.get_num_threads()))
    limit = limits.read_bytes if case.decoding else limits.flops(case.dtype)
    if reading:
        limit = work / statistics.median(reading)
    ours = seconds[0]
    return [
        Row(
            case.name,
            contestant.name,
            contestant.computed_by,
            statistics.median(times) * 1e3,
            _interquartile(times) * 1e3,
            statistics.median(theirs / mine for theirs, mine in zip(times, ours, strict=True)),
            limit and work / statistics.median(times) / limit,
            limit and work / min(times) / limit,
            work / statistics.median(times) if case.decoding else None,
            limit,
            error,
        )
        for contestant, times, error in zip(competing, seconds, errors, strict=True)
    ]


def judge(case: Case, competing: list[Contestant]) -> list[float]:
    """Return each contestant's error, as in :class:`Row`.

    Raises:
        WrongResultError: a result is wrong.
    """
    # Where nothing is differentiated the ruler widens head by head, as a long cache demands.
    wide = torch.float64 if case.training else case.dtype
    truth = _results(case, ruler(case), wide)
    # Each weight and each result is rounded once, gradients' products of them too; sums are
    # float32, over as many terms as there are keys.
    allowed = 8 * torch.finfo(case.dtype).eps
    allowed += 4 * math.sqrt(case.shape[4]) * torch.finfo(torch.float32).eps
    errors = []
    for contestant in competing:
        found = _results(case, contestant.attend, case.dtype)
        largest = 0.0
        for number, (mine, right) in enumerate(zip(found, truth, strict=True)):
            size = float(right.square().mean().sqrt()) or 1.0
            wrong = (mine.double() - right) / size
            mean = float(wrong.square().mean().sqrt())
            if not mean <= allowed:
                raise WrongResultError(
                    f"{case.name}, {contestant.name}, computed by {contestant.computed_by}, result "
                    f"{number}: expected within {allowed:.2e} of float64, got {mean:.2e}"
                )
            largest = max(largest, float(wrong.abs().max()))
        errors.append(largest)
    return errors


def _results(case: Case, attend: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
    inputs = case.inputs(dtype, grad=case.training)
    out = attend(*inputs)
    if not case.training:
        return [out]
    return [out.detach(), *torch.autograd.grad(out, inputs, _slope(out))]


def _slope(out: Tensor) -> Tensor:
    """Return a gradient of the output; ones would cancel in the softmax's derivative."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(out.shape, generator=generator).to(out.dtype)


def _timed(
    case: Case, competing: list[Contestant], effort: Effort, probe: Probe | None
) -> tuple[list[list[float]], list[float]]:
    """Return each contestant's seconds by round, and those of reading what a call must read."""
    # Taken in turn by all contestants: else the second of a round would read the first's cache.
    copies = _copies(case)
    inputs = itertools.cycle(copies)
    runs = [_run_of(case, contestant, inputs) for contestant in competing]
    repeats = []
    for run in runs:
        # Of every copy, because a contestant may keep something of its own for each.
        for _ in copies:
            run()
        repeats.append(max(1, min(500, int(_SHORTEST / max(run(), 1e-9)))))
    seconds: list[list[float]] = [[] for _ in competing]
    reading: list[float] = []
    start = time.perf_counter()
    for done in range(effort.rounds):
        if done >= 5 and time.perf_counter() - start > effort.seconds:
            break
        for times, run, repeat in zip(seconds, runs, repeats, strict=True):
            times.append(sum(run() for _ in range(repeat)) / repeat)
        if case.decoding and probe is not None:
            spans = [tensor for _, key, value, *_ in copies for tensor in (key, value)]
            took = probe.seconds_to_read(spans, torch.get_num_threads())
            reading += [] if took is None else [took / len(copies)]
    return seconds, reading


def timed_once(case: Case, contestant: Contestant) -> Callable[[], float]:
    """Return what runs a contestant once and returns the seconds of the part that is measured."""
    return _run_of(case, contestant, itertools.cycle(_copies(case)))


def _copies(case: Case) -> list[tuple[Tensor, ...]]:
    first = case.inputs(case.dtype, grad=case.training)
    copies = [first]
    if case.decoding:
        count = math.ceil(_BEYOND_CACHES / case.kv_bytes())
        copies += [tuple(tensor.clone() for tensor in first) for _ in range(count - 1)]
    return copies


def _run_of(
    case: Case, contestant: Contestant, inputs: Iterator[tuple[Tensor, ...]]
) -> Callable[[], float]:
    """Return what runs a contestant once and returns the seconds of the part that is measured."""
    if case.part is Part.FORWARD:

        def forward() -> float:
            given = next(inputs)
            start = time.perf_counter()
            contestant.attend(*given)
            return time.perf_counter() - start

        return forward

    batch, q_heads, _, q_length, _, head_dim = case.shape
    slope = _slope(torch.empty((batch, q_heads, q_length, head_dim), dtype=case.dtype))

    def train() -> float:
        given = next(inputs)
        begin = time.perf_counter()
        out = contestant.attend(*given)
        middle = time.perf_counter()
        torch.autograd.grad(out, given, slope)
        return time.perf_counter() - (middle if case.part is Part.BACKWARD else begin)

    return train


def _interquartile(times: list[float]) -> float:
    if len(times) < 4:
        return max(times) - min(times)
    lower, _, upper = statistics.quantiles(times, n=4)
    return upper - lower

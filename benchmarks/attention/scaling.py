"""How much faster two threads are than one."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch

from benchmarks.measuring import modifiers
from benchmarks.measuring.cases import Case, Part
from benchmarks.measuring.contestants import contestants
from benchmarks.measuring.findings import Finding, at_least
from benchmarks.measuring.measure import Effort, judge, timed_once

__all__ = ["measure_scaling"]

_LOW: Final = torch.bfloat16
# Of glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
# Times as many rounds as are asked for.
_MOST: Final = 8
_CASES: Final = tuple(
    Case(
        f"{name}, {part}",
        shape,
        dtype,
        mask_mod=modifiers.causal,
        part=part,
        compiled_flex=False,
    )
    for dtype in (_LOW, torch.float32)
    for name, shape in (
        (f"one long sequence, {str(dtype)[6:]}", (1, 4, 4, 8192, 8192, 64)),
        (f"many short sequences, {str(dtype)[6:]}", (64, 8, 8, 128, 128, 64)),
    )
    for part in (Part.FORWARD, Part.BACKWARD)
)


def measure_scaling(
    effort: Effort, *, quick: bool, demand: str | None, progress: Callable[[str], None]
) -> list[Finding]:
    """Time one thread and two in turn, in memory that this process keeps from here on.

    Args:
        effort: how often.
        quick: shorter sequences.
        demand: the implementation that ours must be.
        progress: receives the name of each step.

    Raises:
        WrongResultError: a result is wrong.
    """
    _keep_freed_memory()
    control = _arithmetic()
    threads = torch.get_num_threads()
    findings = []
    try:
        for case in _CASES:
            progress(case.name)
            sized = case.shortened(8) if quick else case
            ours = contestants(sized, demand)[:1]
            small = replace(sized, shape=(1, *sized.shape[1:]))
            small = small.shortened(4) if sized.shape[3] > 2048 else small
            judge(small, contestants(small, demand)[:1])
            run = timed_once(sized, ours[0])
            seconds: dict[int, list[float]] = {1: [], 2: []}
            alone: dict[int, list[float]] = {1: [], 2: []}
            least = max(3, effort.rounds // 2) + 1
            start = time.perf_counter()
            # What disturbs two threads but not one lasts for seconds: short runs need more rounds.
            while len(seconds[1]) < least or (
                len(seconds[1]) < _MOST * least and time.perf_counter() - start < effort.seconds / 2
            ):
                for count, times in seconds.items():
                    torch.set_num_threads(count)
                    times.append(run())
                    alone[count].append(control())
            # The first round found cold caches.
            one, two = (times[1:] for times in seconds.values())
            ratio = _ratio(one, two)
            computed_by = ours[0].computed_by
            findings.append(
                Finding(case.name, computed_by, "one thread, ms", statistics.median(one) * 1e3)
            )
            findings.append(
                Finding(case.name, computed_by, "two threads, ms", statistics.median(two) * 1e3)
            )
            findings.append(at_least(case.name, computed_by, "one / two", ratio, 1.85))
            bound = _ratio(alone[1], alone[2])
            findings.append(Finding(case.name, "arithmetic alone", "one / two", bound))
    finally:
        torch.set_num_threads(threads)
    return findings


def _keep_freed_memory() -> None:
    """Have the C library keep what is freed, where it is glibc.

    It gives large blocks back to the system now and then, by what else was freed before: then one
    number of threads clears its outputs' pages again where the other finds them, and the ratio
    shows that. It shows the kernel's threads where both find them.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 1 << 30)


def _ratio(one: list[float], two: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, two, strict=True))


def _arithmetic() -> Callable[[], float]:
    """Return what computes for some milliseconds from a cache, and returns how long it took.

    Each thread has numbers of its own, so it scales as the machine lets anything scale at the time.
    """
    # Half a mebibyte; torch gives each thread as many.
    numbers = torch.linspace(2, 9, 1 << 17)
    found = torch.empty_like(numbers)

    def run() -> float:
        start = time.perf_counter()
        for _ in range(8):
            torch.lgamma(numbers, out=found)
        return time.perf_counter() - start

    return run

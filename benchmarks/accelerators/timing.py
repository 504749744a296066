"""Times on a device, and what the device can do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

__all__ = ["Limits", "Timer"]

# More than any cache of a device holds.
_BEYOND_CACHES: Final = 256 << 20
_EDGE: Final = 8192
_FAR_BEHIND: Final = 20.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device did in this run.

    Attributes:
        teraflops: of a square matrix product in bfloat16 by torch, 10^12 operations a second.
        bandwidth: of a copy, reads and writes together, 10^9 bytes a second.
    """

    teraflops: float
    bandwidth: float

    def floor(self, operations: float, size: float) -> float:
        """Return the least milliseconds in which so many operations and bytes are done."""
        return max(operations / self.teraflops / 1e9, size / self.bandwidth / 1e6)


class Timer:
    """Medians on a device, caches cold, the host's work hidden behind the device's where it can be.

    Args:
        device: torch device type; on a CPU the host's clock is read.
        quick: small probes; the figures mean nothing.
    """

    def __init__(self, device: str, *, quick: bool = False) -> None:
        self.device = device
        self._edge = 256 if quick else _EDGE
        size = _BEYOND_CACHES >> 8 if quick else _BEYOND_CACHES
        self._other = torch.empty(size, dtype=torch.int8, device=device)

    def milliseconds(
        self, runs: Mapping[str, Callable[[], Any]], rounds: int, *, cold: bool = True
    ) -> dict[str, float]:
        """Return the median of each, all in alternation, after one run of each that is not timed.

        Args:
            runs: by name.
            rounds: how many times each is timed.
            cold: whether something else fills the caches before each.
        """
        for run in runs.values():
            run()
        self._wait()
        times = {name: [self._once(run, cold)] for name, run in runs.items()}
        least = min((found[0] for found in times.values()), default=0.0)
        for _ in range(rounds - 1):
            for name, run in runs.items():
                # What is far behind is not timed again: a minute of a device is better spent.
                if times[name][0] <= _FAR_BEHIND * least:
                    times[name].append(self._once(run, cold))
        return {name: statistics.median(found) for name, found in times.items()}

    def limits(self) -> Limits:
        """Measure the device."""
        one, other = (
            torch.randn(self._edge, self._edge, device=self.device).bfloat16() for _ in range(2)
        )
        source = torch.empty_like(self._other)
        spent = self.milliseconds(
            {"product": lambda: one @ other, "copy": lambda: self._other.copy_(source)},
            10,
            cold=False,
        )
        return Limits(
            2e-9 * self._edge**3 / spent["product"], 2e-6 * source.numel() / spent["copy"]
        )

    def _once(self, run: Callable[[], Any], cold: bool) -> float:
        if cold:
            self._other.zero_()
        if self.device == "cpu":
            begun = time.perf_counter()
            run()
            return (time.perf_counter() - begun) * 1e3
        start, end = (torch.Event(self.device, enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def _wait(self) -> None:
        if self.device != "cpu":
            torch.accelerator.synchronize()

"""Times of several ways to compute the same, taken in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["milliseconds"]


def milliseconds(ways: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Return the median of each way's calls, of which the first is left out."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns + 1):
        for way in sorted(ways, reverse=bool(turn % 2)):
            start = time.perf_counter()
            ways[way]()
            times[way].append(time.perf_counter() - start)
    return {way: 1e3 * statistics.median(found[1:]) for way, found in times.items()}

"""How many threads to compute with on a processor that others may use too."""

from __future__ import annotations

import time
from typing import Final

import torch

# A step ends when its slowest thread does: where another process holds a core, two threads can
# take ten times as long as one.
_SECONDS: Final = 0.4
_GAIN: Final = 1.15


def use_fastest_threads() -> int:
    """Set torch to all of its threads, or to one where that is about as fast; return how many."""
    most = torch.get_num_threads()
    if most > 1:
        together = _pace()
        torch.set_num_threads(1)
        alone = _pace()
        if together > _GAIN * alone:
            torch.set_num_threads(most)
    return torch.get_num_threads()


def _pace() -> float:
    """Return how often per second a layer of the demo's kind is computed."""
    rows, weights = torch.randn(1024, 256), torch.randn(256, 1024)
    done, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < _SECONDS:
        torch.nn.functional.gelu(rows @ weights)
        done += 1
    return done / elapsed

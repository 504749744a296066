"""What replacing layers brought, measured on the model's own layers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_kernels._accelerate._report import Gain

__all__ = ["Pair", "measured_gain"]

# Layers that take turns at most, and turns.
_LAYERS: Final = 16
_TURNS: Final = 7

# Name, module before, module after, and of x: K, dtype and device.
Pair: TypeAlias = tuple[
    str, Callable[[Tensor], Any], Callable[[Tensor], Any], int, torch.dtype, torch.device
]


def measured_gain(pairs: Sequence[Pair]) -> Gain | None:
    """Return the gain of the pairs of the commonest shape.

    Args:
        pairs: what to time.
    """
    shapes = [pair[3:] for pair in pairs]
    if not shapes:
        return None
    commonest = max(dict.fromkeys(shapes), key=lambda shape: (shapes.count(shape), shape[0]))
    chosen = [pair for pair in pairs if pair[3:] == commonest][:_LAYERS]
    columns, dtype, device = commonest
    x = torch.ones(1, columns, dtype=dtype, device=device)
    sides: list[list[float]] = [[], []]
    with torch.inference_mode():
        for turn in range(_TURNS + 1):
            for side in (0, 1):
                start = time.perf_counter()
                for _, before_it, after_it, *_ in chosen:
                    (after_it if side else before_it)(x)
                if device.type != "cpu":
                    torch.accelerator.synchronize(device)
                # The first turn decides who computes, and loads it.
                if turn:
                    sides[side].append((time.perf_counter() - start) / len(chosen))
    before, after = (statistics.median(seconds) for seconds in sides)
    return Gain(chosen[0][0], len(chosen), before, after)

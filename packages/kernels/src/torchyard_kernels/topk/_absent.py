"""The value that fills places beyond a row's elements."""

from __future__ import annotations

import math

import torch

__all__ = ["absent"]


def absent(dtype: torch.dtype, largest: bool) -> float:
    """Return the value that comes last in the order."""
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if largest else limits.max

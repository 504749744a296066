"""The value of a place for which a row has no element."""

from __future__ import annotations

import math

import torch

__all__ = ["absent"]


def absent(dtype: torch.dtype, largest: bool) -> float:
    """Return the value that no element stands behind."""
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if largest else limits.max

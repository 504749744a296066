"""How large an error is, and how near to its bound."""

from __future__ import annotations

import math

from torch import Tensor

__all__ = ["largest", "ratio", "rms"]


def largest(x: Tensor) -> float:
    """Return the greatest magnitude; 0 of nothing."""
    return float(x.abs().max()) if x.numel() else 0.0


def rms(x: Tensor) -> float:
    """Return the root of the mean square; 0 of nothing."""
    return float(x.square().mean().sqrt()) if x.numel() else 0.0


def ratio(error: float, bound: float) -> float:
    """Return an error over its bound; up to 1 passes."""
    if error == 0.0:
        return 0.0
    return error / bound if math.isfinite(error) and bound > 0.0 else math.inf

"""What ``pointwise/1`` means: everything in float64, rounded once."""

from __future__ import annotations

from torch import Tensor

from torchyard_kernels._pointwise._evaluation import EXACT
from torchyard_kernels._pointwise._portable import portable_pointwise
from torchyard_kernels.contracts.pointwise import PointwiseCall

__all__ = ["reference_pointwise"]


def reference_pointwise(call: PointwiseCall) -> tuple[list[Tensor], ...]:
    """Compute a call in float64; integers are integers."""
    return portable_pointwise(call, EXACT)

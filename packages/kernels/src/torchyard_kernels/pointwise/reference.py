"""What ``pointwise/1`` means: everything in float64, rounded once."""

from __future__ import annotations

from torch import Tensor

from torchyard_kernels.pointwise._evaluation import EXACT
from torchyard_kernels.pointwise.contract import PointwiseCall
from torchyard_kernels.pointwise.implementations.map import portable_pointwise

__all__ = ["reference_pointwise"]


def reference_pointwise(call: PointwiseCall) -> tuple[list[Tensor], ...]:
    """Compute a call in float64; integers are integers."""
    return portable_pointwise(call, EXACT)

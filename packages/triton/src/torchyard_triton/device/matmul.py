"""The product of matrices, also where Triton's interpreter computes it."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton._interpreter import interprets

__all__ = ["matmul"]

_INTERPRETED = tl.constexpr(interprets())


@triton.jit
def matmul(left, right, total=None):
    """Return float32 left @ right, or total + left @ right; factors are multiplied exactly.

    Triton's interpreter has bfloat16 as its 16 bits, and would multiply those as integers.
    """
    if _INTERPRETED and left.dtype == tl.bfloat16:
        left, right = left.to(tl.float32), right.to(tl.float32)
    # Triton 3.3 takes no constant None for a sum.
    if total is None:
        return tl.dot(left, right, input_precision="ieee")
    else:
        return tl.dot(left, right, total, input_precision="ieee")

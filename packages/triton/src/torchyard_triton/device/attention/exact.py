"""Sums of products to which pairs that are not visible give nothing, whatever their operands hold.

A product of matrices multiplies hidden pairs by 0, and 0 times NaN or an infinity is NaN. So a pass
marks the rows of its result that are not finite, which they are wherever such an operand took part,
and a second launch computes the marked rows again by ``product`` with EXACT.
"""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.matmul import matmul

__all__ = ["not_finite", "product"]


@triton.jit
def not_finite(rows):
    """Return int8 [M]: whether a row of [M, N] holds NaN or an infinity."""
    return tl.max(tl.where(tl.abs(rows.to(tl.float32)) < float("inf"), 0, 1), 1).to(tl.int8)


@triton.jit
def product(left, right, total, seen, EXACT: tl.constexpr, TURNED: tl.constexpr = True):
    """Return total + left @ right.

    Args:
        left: float32 [M, N], 0 where a pair is not seen; [N, M] where not TURNED.
        right: [N, D]. total: float32 [M, D].
        seen: bool, as left, read where EXACT: a row of right reaches the rows that see it alone.
    """
    # Converted before it is transposed: the other order needs more registers.
    narrow = left.to(right.dtype)
    if not TURNED:
        narrow = tl.trans(narrow)
    if EXACT:
        N: tl.constexpr = right.shape[0]
        finite = tl.abs(right.to(tl.float32)) < float("inf")
        rest = tl.where(finite, right, tl.zeros_like(right))
        if not TURNED:
            left, seen = tl.trans(left), tl.trans(seen)
        total = matmul(narrow, rest, total)
        bad = tl.max(tl.where(finite, 0, 1), 1)
        count = tl.sum(bad, 0)
        if count != 0:
            places = tl.arange(0, N)
            wide = right.to(tl.float32)
            last = -1
            # From one bad row to the next.
            for _ in range(count):
                last = tl.min(tl.where((bad != 0) & (places > last), places, N), 0)
                at = places == last
                row = tl.sum(tl.where(at[:, None], wide, 0.0), 0)
                weight = tl.sum(tl.where(at[None, :], left, 0.0), 1)
                sees = tl.max(tl.where(at[None, :] & seen, 1, 0), 1) != 0
                finite_row = tl.abs(row.to(tl.float32)) < float("inf")
                part = tl.where(finite_row[None, :], 0.0, weight[:, None] * row[None, :])
                total += tl.where(sees[:, None], part, 0.0)
        return total
    else:
        return matmul(narrow, right, total)

"""The gradients of scores, which every backward pass recomputes from the lse."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.attention.tiles import by_column, by_row, modified

__all__ = ["LOG2E", "score_gradients", "weights_of"]

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def weights_of(
    raw,
    b,
    h,
    rows,
    columns,
    captured,
    lse,
    seen,
    SCORE: tl.constexpr,
    TURNED: tl.constexpr = False,
):
    """Return exp(score - lse) of a tile [rows, columns], 0 where a pair is not visible.

    Turned, all of them are [columns, rows]. Rows that see nothing have the lse -inf; none of their
    pairs is visible, or has a score of -inf.
    """
    scores = modified(raw, b, h, rows, columns, captured, SCORE, TURNED)
    base = tl.where(lse == float("-inf"), 0.0, lse)
    return tl.where(seen, tl.exp2((scores - by_row(base, TURNED)) * LOG2E), 0.0)


@triton.jit
def score_gradients(
    raw,
    weights,
    dropped,
    delta,
    b,
    h,
    rows,
    columns,
    captured,
    seen,
    SLOPE: tl.constexpr,
    TURNED: tl.constexpr = False,
):
    """Return the gradients of a tile's raw scores, 0 where a pair is not visible.

        d score = weight (grad_out . value - delta),  d raw = d score SLOPE(raw)

    Args:
        dropped: grad_out . value of each pair.
        delta: grad_out . out - grad_lse of each row.
    """
    slope = weights * (dropped - by_row(delta, TURNED))
    if SLOPE is not None:
        q, k = by_row(rows, TURNED), by_column(columns, TURNED)
        slope = slope * SLOPE(raw, b, h, q, k, captured)
    return tl.where(seen, slope, 0.0)

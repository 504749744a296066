"""Attention over all keys from attention over parts of them."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["attention_merge"]


@triton.jit
def attention_merge(
    states,
    lses,
    maxima,
    out,
    lse,
    max_scores,
    sinks,
    count,
    heads,
    q_length,
    splits,
    SINKS: tl.constexpr,
    MAXIMA: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Compute out = sum_p exp(lse_p - lse) out_p, lse = log sum_p exp(lse_p), parts in order.

    Online softmax (arXiv 1805.02867), section 3.1. A part without visible keys changes no bit.
    Grid: tiles of rows.

    Args:
        states: float32 [parts, rows, V]. lses, maxima: float32 [parts, rows].
        out: [rows, V]. lse, max_scores: float32 [rows]. All are contiguous.
        sinks: float32 [H], see the forward.
        count: rows: batch * head * query.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < count
    top = tl.full([ROWS], float("-inf"), tl.float32)
    at = rows
    for _ in range(splits):
        top = tl.maximum(top, tl.load(lses + at, mask=inside, other=float("-inf")))
        at += count
    if SINKS:
        sink = tl.load(sinks + (rows // q_length) % heads, mask=inside, other=float("-inf"))
        top = tl.maximum(top, sink)
    base = tl.where(top == float("-inf"), 0.0, top)
    width = tl.arange(0, VALUE_PADDED)
    written = inside[:, None] & (width < VALUE_SIZE)[None, :]
    total = tl.zeros([ROWS, VALUE_PADDED], tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    greatest = tl.full([ROWS], float("-inf"), tl.float32)
    at = rows
    for _ in range(splits):
        share = tl.exp(tl.load(lses + at, mask=inside, other=float("-inf")) - base)
        weight += share
        places = at[:, None] * VALUE_SIZE + width[None, :]
        total += share[:, None] * tl.load(states + places, mask=written, other=0.0)
        if MAXIMA:
            found = tl.load(maxima + at, mask=inside, other=float("-inf"))
            greatest = tl.maximum(greatest, found, propagate_nan=tl.PropagateNan.ALL)
        at += count
    if SINKS:
        weight += tl.exp(sink - base)
    empty = weight == 0.0
    divisor = tl.where(empty, 1.0, weight)
    tl.store(lse + rows, tl.where(empty, float("-inf"), base + tl.log(divisor)), mask=inside)
    if MAXIMA:
        tl.store(max_scores + rows, greatest, mask=inside)
    result = (total / divisor[:, None]).to(out.dtype.element_ty)
    tl.store(out + rows[:, None] * VALUE_SIZE + width[None, :], result, mask=written)

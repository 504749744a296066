"""The forward pass: FlashAttention-2 (arXiv 2307.08691), algorithm 1, with programs and lists."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.attention.exact import not_finite
from torchyard_triton.device.attention.tiles import (
    head_start,
    listed_keys,
    listed_steps,
    load_rows,
    modified,
    program_place,
    row_places,
    row_tile,
    seen_pairs,
)
from torchyard_triton.device.matmul import matmul

__all__ = ["accumulate", "attention_forward"]

_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def accumulate(total, weight, greatest, scores, seen, values):
    """Return the running sum of values, of weights, and the greatest score, with one more tile.

    Scores are in units of log 2. Weights are rescaled whenever a greater score appears.
    """
    scores = tl.where(seen, scores * _LOG2E, float("-inf"))
    top = tl.maximum(greatest, tl.max(scores, 1))
    base = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(scores - base[:, None])
    rescale = tl.exp2(greatest - base)
    total = matmul(weights.to(values.dtype), values, total * rescale[:, None])
    return total, weight * rescale + tl.sum(weights, 1), top


@triton.jit
def attention_forward(
    query,
    key,
    value,
    out,
    lse,
    max_scores,
    marks,
    mask,
    sinks,
    captured,
    mask_captured,
    scale,
    heads,
    group,
    q_length,
    kv_length,
    tiles,
    SCORE: tl.constexpr,
    MASK: tl.constexpr,
    LISTS: tl.constexpr,
    SINKS: tl.constexpr,
    MAXIMA: tl.constexpr,
    MARKS: tl.constexpr,
    BLOCK: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Compute ROWS rows of one head of one batch.

        out[q] = sum_k exp(score[q, k] - lse[q]) value[k],  lse[q] = log sum_k exp(score[q, k])

    over visible k, with ``score = SCORE(scale * query . key)``. Grid: batch * head * tile of rows.

    Args:
        query, key, value: see ``tiles``; float32, float16 or bfloat16.
        out: likewise, in query's dtype. lse, max_scores: float32 [B, H, Sq], contiguous.
        marks: int8 [B, H, Sq], written where MARKS: whether a row of out is not finite.
        mask: see ``tiles``; read where LISTS.
        sinks: float32 [H], read where SINKS: each adds exp(sinks[h]) to the sum of its rows.
        captured, mask_captured: of the programs SCORE and MASK.
        heads, group: H, and query heads for each key head.
        tiles: of rows, of one head.
        BLOCK, KEY_BLOCK: sizes of the mask's blocks; 0 without lists.
    """
    tile, batch_head, b, h = program_place(tiles, heads)
    # Under most masks later rows see more keys: the longest programs begin first.
    tile = tiles - 1 - tile
    block, rows, end = row_tile(tile, q_length, BLOCK, ROWS)
    q = load_rows(head_start(query, b, h), query, rows, end, SIZE, PADDED)
    keys, values = head_start(key, b, h // group), head_start(value, b, h // group)
    total = tl.zeros([ROWS, VALUE_PADDED], tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    greatest = tl.full([ROWS], float("-inf"), tl.float32)
    undefined = tl.zeros([ROWS], tl.int32)
    row, partial, steps = listed_steps(mask, b, h, block, kv_length, LISTS, KEY_BLOCK, KEYS)
    # One loop for partial and whole blocks: two would need the registers of both.
    for step in range(steps):
        key_block, slot, columns, stop = listed_keys(
            mask, row, step, partial, kv_length, LISTS, KEY_BLOCK, KEYS
        )
        k = load_rows(keys, key, columns, stop, SIZE, PADDED)
        scores = matmul(q, tl.trans(k)) * scale
        scores = modified(scores, b, h, rows, columns, captured, SCORE)
        seen = seen_pairs(
            *(mask, slot, block, key_block, b, h, rows, columns, mask_captured),
            *(step >= partial, end, stop, BLOCK, KEY_BLOCK, MASK, LISTS),
        )
        if MAXIMA:
            undefined = tl.maximum(undefined, tl.max(tl.where(seen & (scores != scores), 1, 0), 1))
        v = load_rows(values, value, columns, stop, VALUE_SIZE, VALUE_PADDED)
        total, weight, greatest = accumulate(total, weight, greatest, scores, seen, v)
    if SINKS:
        sink = tl.load(sinks + h) * _LOG2E
        top = tl.maximum(greatest, sink)
        base = tl.where(top == float("-inf"), 0.0, top)
        rescale = tl.exp2(greatest - base)
        total, weight = total * rescale[:, None], weight * rescale + tl.exp2(sink - base)
    else:
        base = greatest
    empty = weight == 0.0
    divisor = tl.where(empty, 1.0, weight)
    places = batch_head.to(tl.int64) * q_length + rows
    logarithm = tl.where(empty, float("-inf"), (base + tl.log2(divisor)) * _LN2)
    tl.store(lse + places, logarithm, mask=rows < end)
    if MARKS:
        tl.store(marks + places, not_finite(total), mask=rows < end)
    if MAXIMA:
        # The greatest score of NaN and others is NaN.
        top = tl.where(undefined == 0, greatest * _LN2, float("nan"))
        tl.store(max_scores + places, top, mask=rows < end)
    columns = tl.arange(0, VALUE_PADDED)
    inside = (rows < end)[:, None] & (columns < VALUE_SIZE)[None, :]
    result = (total / divisor[:, None]).to(out[0].dtype.element_ty)
    tl.store(head_start(out, b, h) + row_places(out, rows, columns), result, mask=inside)

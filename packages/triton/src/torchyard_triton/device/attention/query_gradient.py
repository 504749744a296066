"""The backward pass that gives the query's gradient."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.attention.exact import not_finite, product
from torchyard_triton.device.attention.gradients import score_gradients, weights_of
from torchyard_triton.device.attention.tiles import (
    head_start,
    listed_keys,
    listed_steps,
    load_rows,
    program_place,
    row_places,
    row_tile,
    seen_pairs,
)
from torchyard_triton.device.matmul import matmul

__all__ = ["attention_query_gradient"]


@triton.jit
def attention_query_gradient(
    query,
    key,
    value,
    grad_out,
    grad_query,
    lse,
    delta,
    marks,
    mask,
    captured,
    mask_captured,
    scale,
    heads,
    group,
    q_length,
    kv_length,
    tiles,
    SCORE: tl.constexpr,
    SLOPE: tl.constexpr,
    MASK: tl.constexpr,
    LISTS: tl.constexpr,
    MARKS: tl.constexpr,
    EXACT: tl.constexpr,
    BLOCK: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Compute grad_query[q] = scale sum_k d raw[q, k] key[k] for ROWS rows of one head.

    FlashAttention-2 (arXiv 2307.08691), algorithm 2, by rows: each row is written once, in an order
    that depends on sizes alone. Grid: batch * head * tile of rows. Arguments as of the forward.
    With EXACT only marked rows are computed, see ``exact``.
    """
    tile, batch_head, b, h = program_place(tiles, heads)
    # Under most masks later rows see more keys: the longest programs begin first.
    tile = tiles - 1 - tile
    block, rows, end = row_tile(tile, q_length, BLOCK, ROWS)
    places = batch_head.to(tl.int64) * q_length + rows
    if EXACT:
        marked = tl.load(marks + places, mask=rows < end, other=0) != 0
        if tl.max(tl.where(marked, 1, 0), 0) == 0:
            return
    q = load_rows(head_start(query, b, h), query, rows, end, SIZE, PADDED)
    slope = load_rows(head_start(grad_out, b, h), grad_out, rows, end, VALUE_SIZE, VALUE_PADDED)
    row_lse = tl.load(lse + places, mask=rows < end, other=0.0)
    row_delta = tl.load(delta + places, mask=rows < end, other=0.0)
    keys, values = head_start(key, b, h // group), head_start(value, b, h // group)
    total = tl.zeros([ROWS, PADDED], tl.float32)
    row, partial, steps = listed_steps(mask, b, h, block, kv_length, LISTS, KEY_BLOCK, KEYS)
    for step in range(steps):
        key_block, slot, columns, stop = listed_keys(
            mask, row, step, partial, kv_length, LISTS, KEY_BLOCK, KEYS
        )
        k = load_rows(keys, key, columns, stop, SIZE, PADDED)
        v = load_rows(values, value, columns, stop, VALUE_SIZE, VALUE_PADDED)
        seen = seen_pairs(
            *(mask, slot, block, key_block, b, h, rows, columns, mask_captured),
            *(step >= partial, end, stop, BLOCK, KEY_BLOCK, MASK, LISTS, False, EXACT),
        )
        raw = matmul(q, tl.trans(k)) * scale
        weights = weights_of(raw, b, h, rows, columns, captured, row_lse, seen, SCORE)
        dropped = matmul(slope, tl.trans(v))
        found = score_gradients(
            *(raw, weights, dropped, row_delta, b, h, rows, columns, captured, seen, SLOPE)
        )
        total = product(found, k, total, seen, EXACT)
    if MARKS:
        tl.store(marks + places, not_finite(total), mask=rows < end)
    columns = tl.arange(0, PADDED)
    inside = (rows < end)[:, None] & (columns < SIZE)[None, :]
    if EXACT:
        inside = inside & marked[:, None]
    places = row_places(grad_query, rows, columns)
    result = (total * scale).to(grad_query[0].dtype.element_ty)
    tl.store(head_start(grad_query, b, h) + places, result, mask=inside)

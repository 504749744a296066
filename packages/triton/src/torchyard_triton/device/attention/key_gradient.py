"""The backward pass that gives the gradients of key and value."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.attention.exact import not_finite, product
from torchyard_triton.device.attention.gradients import score_gradients, weights_of
from torchyard_triton.device.attention.tiles import (
    head_start,
    load_rows,
    program_place,
    row_places,
    row_tile,
    seen_pairs,
    tiles_per_block,
)
from torchyard_triton.device.matmul import matmul

__all__ = ["attention_key_gradient"]


@triton.jit
def _listed_rows(
    transposed,
    column,
    step,
    partial,
    q_length,
    LISTS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Return what step of a column of blocks computes: block, slot of its bits, rows, their end."""
    if LISTS:
        per_block = tiles_per_block(q_length, BLOCK, ROWS)
        is_partial = step < partial
        place = tl.where(is_partial, step, step - partial) // per_block
        lists = tl.where(is_partial, transposed[1], transposed[3])
        at = column * transposed[8] + place
        block = tl.load(lists + at)
        slot = tl.load(transposed[4] + at, mask=is_partial, other=-1)
        rows = block * BLOCK + (step % per_block) * ROWS + tl.arange(0, ROWS)
        return block, slot, rows, tl.minimum(q_length, (block + 1) * BLOCK)
    else:
        return column * 0, column * 0, step * ROWS + tl.arange(0, ROWS), q_length


@triton.jit
def _pairs(of_rows, of_columns, TURNED: tl.constexpr):
    """Return the products of rows and columns [rows, columns], or turned."""
    if TURNED:
        return matmul(of_columns, tl.trans(of_rows))
    else:
        return matmul(of_rows, tl.trans(of_columns))


@triton.jit
def attention_key_gradient(
    query,
    key,
    value,
    grad_out,
    grad_key,
    grad_value,
    lse,
    delta,
    marks,
    mask,
    transposed,
    captured,
    mask_captured,
    scale,
    kv_heads,
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
    TURNED: tl.constexpr,
):
    """Compute gradients of KEYS keys and values of one key head.

        grad_key[k] = scale sum_q d raw[q, k] query[q],  grad_value[k] = sum_q weight grad_out[q]

    over the query heads of the group in order. FlashAttention-2 (arXiv 2307.08691), algorithm 2.
    Grid: batch * key head * tile of keys. Arguments as of the forward. With EXACT only marked keys
    are computed, see ``exact``; and:

    Args:
        marks: int8 [B, Hkv, Sk]: whether a key's or value's gradient is not finite.
        transposed: the mask's lists by columns of blocks: (partial counts, partial rows, full
            counts, full rows, slots of bits, batches, heads, column blocks, width).
        TURNED: whether tiles of pairs are [columns, rows], as the products that give the gradients
            take them; otherwise they are transposed for each.
    """
    tile, batch_head, b, kv_head = program_place(tiles, kv_heads)
    key_block, columns, stop = row_tile(tile, kv_length, KEY_BLOCK, KEYS)
    marked_places = batch_head.to(tl.int64) * kv_length + columns
    if EXACT:
        marked = tl.load(marks + marked_places, mask=columns < stop, other=0) != 0
        if tl.max(tl.where(marked, 1, 0), 0) == 0:
            return
    k = load_rows(head_start(key, b, kv_head), key, columns, stop, SIZE, PADDED)
    v = load_rows(head_start(value, b, kv_head), value, columns, stop, VALUE_SIZE, VALUE_PADDED)
    key_total = tl.zeros([KEYS, PADDED], tl.float32)
    value_total = tl.zeros([KEYS, VALUE_PADDED], tl.float32)
    for member in range(group):
        h = kv_head * group + member
        queries, slopes = head_start(query, b, h), head_start(grad_out, b, h)
        first = (b * kv_heads * group + h).to(tl.int64) * q_length
        if LISTS:
            per_block = tiles_per_block(q_length, BLOCK, ROWS)
            column = ((b % transposed[5]) * transposed[6] + h % transposed[6]).to(tl.int64)
            column = column * transposed[7] + key_block
            partial = tl.load(transposed[0] + column) * per_block
            steps = partial + tl.load(transposed[2] + column) * per_block
        else:
            column = batch_head.to(tl.int64)
            partial = tl.cdiv(q_length, ROWS)
            steps = partial
        for step in range(steps):
            block, slot, rows, end = _listed_rows(
                transposed, column, step, partial, q_length, LISTS, BLOCK, ROWS
            )
            q = load_rows(queries, query, rows, end, SIZE, PADDED)
            slope = load_rows(slopes, grad_out, rows, end, VALUE_SIZE, VALUE_PADDED)
            row_lse = tl.load(lse + first + rows, mask=rows < end, other=0.0)
            row_delta = tl.load(delta + first + rows, mask=rows < end, other=0.0)
            seen = seen_pairs(
                *(mask, slot, block, key_block, b, h, rows, columns, mask_captured),
                *(step >= partial, end, stop, BLOCK, KEY_BLOCK, MASK, LISTS, TURNED, EXACT),
            )
            raw = _pairs(q, k, TURNED) * scale
            weights = weights_of(raw, b, h, rows, columns, captured, row_lse, seen, SCORE, TURNED)
            value_total = product(weights, slope, value_total, seen, EXACT, TURNED)
            dropped = _pairs(slope, v, TURNED)
            found = score_gradients(
                *(raw, weights, dropped, row_delta, b, h, rows, columns, captured, seen, SLOPE),
                TURNED=TURNED,
            )
            key_total = product(found, q, key_total, seen, EXACT, TURNED)
    if MARKS:
        mark = tl.maximum(not_finite(key_total), not_finite(value_total))
        tl.store(marks + marked_places, mark, mask=columns < stop)
    written = columns < stop
    if EXACT:
        written = written & marked
    width = tl.arange(0, PADDED)
    inside = written[:, None] & (width < SIZE)[None, :]
    places = row_places(grad_key, columns, width)
    result = (key_total * scale).to(grad_key[0].dtype.element_ty)
    tl.store(head_start(grad_key, b, kv_head) + places, result, mask=inside)
    width = tl.arange(0, VALUE_PADDED)
    inside = written[:, None] & (width < VALUE_SIZE)[None, :]
    places = row_places(grad_value, columns, width)
    result = value_total.to(grad_value[0].dtype.element_ty)
    tl.store(head_start(grad_value, b, kv_head) + places, result, mask=inside)

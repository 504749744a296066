"""The rows that the forward pass marked, computed again with hidden keys and values kept out."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.attention.exact import product
from torchyard_triton.device.attention.gradients import weights_of
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

__all__ = ["attention_exact_forward"]


@triton.jit
def attention_exact_forward(
    query,
    key,
    value,
    out,
    lse,
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
    MASK: tl.constexpr,
    LISTS: tl.constexpr,
    BLOCK: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Compute out[q] = sum_k exp(score[q, k] - lse[q]) value[k] over visible k, for marked rows.

    The lse is the forward's: no hidden key reaches it, since scores are chosen, not multiplied.
    Grid and arguments as of the forward; ``marks`` is read.
    """
    tile, batch_head, b, h = program_place(tiles, heads)
    block, rows, end = row_tile(tile, q_length, BLOCK, ROWS)
    places = batch_head.to(tl.int64) * q_length + rows
    marked = tl.load(marks + places, mask=rows < end, other=0) != 0
    if tl.max(tl.where(marked, 1, 0), 0) == 0:
        return
    row_lse = tl.load(lse + places, mask=rows < end, other=0.0)
    q = load_rows(head_start(query, b, h), query, rows, end, SIZE, PADDED)
    keys, values = head_start(key, b, h // group), head_start(value, b, h // group)
    total = tl.zeros([ROWS, VALUE_PADDED], tl.float32)
    row, partial, steps = listed_steps(mask, b, h, block, kv_length, LISTS, KEY_BLOCK, KEYS)
    for step in range(steps):
        key_block, slot, columns, stop = listed_keys(
            mask, row, step, partial, kv_length, LISTS, KEY_BLOCK, KEYS
        )
        k = load_rows(keys, key, columns, stop, SIZE, PADDED)
        v = load_rows(values, value, columns, stop, VALUE_SIZE, VALUE_PADDED)
        seen = seen_pairs(
            *(mask, slot, block, key_block, b, h, rows, columns, mask_captured),
            *(step >= partial, end, stop, BLOCK, KEY_BLOCK, MASK, LISTS, False, True),
        )
        raw = matmul(q, tl.trans(k)) * scale
        weights = weights_of(raw, b, h, rows, columns, captured, row_lse, seen, SCORE)
        total = product(weights, v, total, seen, True)
    columns = tl.arange(0, VALUE_PADDED)
    inside = marked[:, None] & (columns < VALUE_SIZE)[None, :]
    result = total.to(out[0].dtype.element_ty)
    tl.store(head_start(out, b, h) + row_places(out, rows, columns), result, mask=inside)

"""The backward pass that gives what one read of a captured tensor contributes to its gradient."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.attention.gradients import score_gradients, weights_of
from torchyard_triton.device.attention.tiles import (
    head_start,
    listed_keys,
    listed_steps,
    load_rows,
    row_tile,
    seen_pairs,
)
from torchyard_triton.device.matmul import matmul

__all__ = ["attention_captured_gradient"]


@triton.jit
def attention_captured_gradient(
    query,
    key,
    value,
    grad_out,
    parts,
    places,
    lse,
    delta,
    mask,
    captured,
    mask_captured,
    scale,
    heads,
    group,
    q_length,
    kv_length,
    first_tile,
    first_head,
    tiles,
    SCORE: tl.constexpr,
    SITE: tl.constexpr,
    SPREAD: tl.constexpr,
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
    """Write the parts of a captured tensor's gradient, and the element that each belongs to.

        part[q, k] = d score[q, k] SITE(...).weight,  place[q, k] = SITE(...).place

    Parts with one place are summed here, in an order that depends on sizes alone: those of a tile
    where the place depends on neither q nor k (SPREAD 0), of a row where it does not depend on k
    (SPREAD 1). No atomics: who launches this sums parts by place. Grid: heads * tiles of rows.

    Args:
        parts: float32 [heads, tiles], [heads, tiles * ROWS] or [heads, tiles * ROWS, Sk] by SPREAD,
            contiguous; zeros.
        places: int64, as parts; -1 where there is no part.
        first_tile, first_head: of batch * heads: what the first program computes.
        tiles: of rows, that are computed of each head.
    """
    local_head, local_tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    batch_head = first_head + local_head
    b, h = batch_head // heads, batch_head % heads
    block, rows, end = row_tile(first_tile + local_tile, q_length, BLOCK, ROWS)
    q = load_rows(head_start(query, b, h), query, rows, end, SIZE, PADDED)
    slope = load_rows(head_start(grad_out, b, h), grad_out, rows, end, VALUE_SIZE, VALUE_PADDED)
    at = batch_head.to(tl.int64) * q_length + rows
    row_lse = tl.load(lse + at, mask=rows < end, other=0.0)
    row_delta = tl.load(delta + at, mask=rows < end, other=0.0)
    keys, values = head_start(key, b, h // group), head_start(value, b, h // group)
    total = tl.zeros([ROWS], tl.float32)
    place = tl.full([ROWS], -1, tl.int64)
    local_rows = (local_head * tiles + local_tile).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row, partial, steps = listed_steps(mask, b, h, block, kv_length, LISTS, KEY_BLOCK, KEYS)
    for step in range(steps):
        key_block, slot, columns, stop = listed_keys(
            mask, row, step, partial, kv_length, LISTS, KEY_BLOCK, KEYS
        )
        k = load_rows(keys, key, columns, stop, SIZE, PADDED)
        v = load_rows(values, value, columns, stop, VALUE_SIZE, VALUE_PADDED)
        seen = seen_pairs(
            *(mask, slot, block, key_block, b, h, rows, columns, mask_captured),
            *(step >= partial, end, stop, BLOCK, KEY_BLOCK, MASK, LISTS),
        )
        raw = matmul(q, tl.trans(k)) * scale
        weights = weights_of(raw, b, h, rows, columns, captured, row_lse, seen, SCORE)
        dropped = matmul(slope, tl.trans(v))
        found = score_gradients(
            *(raw, weights, dropped, row_delta, b, h, rows, columns, captured, seen, None)
        )
        q_places, k_places = rows[:, None], columns[None, :]
        weight, element = SITE(raw, b, h, q_places, k_places, captured)
        part = tl.where(seen, found * weight, 0.0)
        element = element + tl.zeros([ROWS, KEYS], tl.int64)
        if SPREAD == 2:
            to = local_rows[:, None] * kv_length + columns[None, :]
            tl.store(parts + to, part, mask=seen)
            tl.store(places + to, element, mask=seen)
        else:
            total += tl.sum(part, 1)
            place = tl.maximum(place, tl.max(tl.where(seen, element, -1), 1))
    if SPREAD == 1:
        tl.store(parts + local_rows, total)
        tl.store(places + local_rows, place)
    if SPREAD == 0:
        tl.store(parts + local_head * tiles + local_tile, tl.sum(total, 0))
        tl.store(places + local_head * tiles + local_tile, tl.max(place, 0))

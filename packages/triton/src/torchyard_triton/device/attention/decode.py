"""Few queries over many keys: heads of a group in one tile, keys in parts that are merged.

Keys may lie one after another, in the pages of a cache, or between those of other sequences. A part
has as many keys whatever the call, so that a sequence's bits do not depend on its neighbours.
"""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.attention.exact import not_finite, product
from torchyard_triton.device.attention.forward import accumulate
from torchyard_triton.device.attention.gradients import LOG2E
from torchyard_triton.device.attention.tiles import (
    listed_keys,
    listed_steps,
    modified,
    row_tile,
    visible,
)
from torchyard_triton.device.matmul import matmul

__all__ = ["attention_decode"]

_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _sequence(n, spans, q_length, kv_length, PAGE: tl.constexpr, PACKED: tl.constexpr):
    """Return a sequence's batch, first query, queries, first key and keys."""
    if PACKED:
        first_q, first_k = tl.load(spans[0] + n), tl.load(spans[1] + n)
        q_count = tl.load(spans[0] + n + 1) - first_q
        k_count = tl.load(spans[1] + n + 1) - first_k
        return n * 0, first_q, q_count.to(tl.int32), first_k, k_count.to(tl.int32)
    elif PAGE:
        return n, n * 0, q_length, n * 0, tl.load(spans[1] + n)
    else:
        return n, n * 0, q_length, n * 0, kv_length


@triton.jit
def _keys(
    tensor,
    spans,
    n,
    b,
    kv_head,
    first,
    columns,
    stop,
    PAGE: tl.constexpr,
    PACKED: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Return keys or values [columns, PADDED] of a sequence, 0 beyond ``stop`` and SIZE."""
    if PAGE and not PACKED:
        entries = spans[0] + n.to(tl.int64) * spans[2] + columns // PAGE
        page = tl.load(entries, mask=columns < stop, other=0).to(tl.int64)
        rows = page * tensor[1] + (columns % PAGE).to(tl.int64) * tensor[3]
    else:
        rows = b.to(tl.int64) * tensor[1] + (first + columns).to(tl.int64) * tensor[3]
    width = tl.arange(0, PADDED)
    places = kv_head.to(tl.int64) * tensor[2] + rows[:, None]
    places = places + width.to(tl.int64)[None, :] * tensor[4]
    inside = (columns < stop)[:, None] & (width < SIZE)[None, :]
    return tl.load(tensor[0] + places, mask=inside, other=0.0)


@triton.jit
def _tile(
    step,
    q,
    key,
    value,
    mask,
    spans,
    captured,
    mask_captured,
    scale,
    place,
    row,
    partial,
    length,
    SCORE: tl.constexpr,
    MASK: tl.constexpr,
    LISTS: tl.constexpr,
    CAUSAL: tl.constexpr,
    PAGE: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Return a step's scores, which pairs it sees, and its values."""
    n, b, h, kv_head, block, rows, inside, first, count, behind = place
    key_block, slot, columns, stop = listed_keys(
        mask, row, step, partial, length, LISTS, KEY_BLOCK, KEYS
    )
    stop = tl.minimum(stop, count)
    k = _keys(key, spans, n, b, kv_head, first, columns, stop, PAGE, PACKED, SIZE, PADDED)
    scores = matmul(q, tl.trans(k)) * scale
    scores = modified(scores, n, h, rows, columns, captured, SCORE)
    seen = visible(
        *(mask, slot, block, key_block, n, h, rows, columns, mask_captured),
        *(step >= partial, BLOCK, KEY_BLOCK, MASK, LISTS),
    )
    if LISTS:
        seen = seen | (step >= partial)
    if CAUSAL:
        seen = seen & (columns[None, :] <= (rows + behind)[:, None])
    seen = seen & (columns < stop)[None, :] & inside[:, None]
    v = _keys(
        *(value, spans, n, b, kv_head, first, columns, stop),
        *(PAGE, PACKED, VALUE_SIZE, VALUE_PADDED),
    )
    return scores, seen, v


@triton.jit
def attention_decode(
    query,
    key,
    value,
    states,
    lses,
    maxima,
    mask,
    spans,
    captured,
    mask_captured,
    scale,
    batches,
    heads,
    group,
    q_length,
    kv_length,
    tiles,
    splits,
    SCORE: tl.constexpr,
    MASK: tl.constexpr,
    LISTS: tl.constexpr,
    CAUSAL: tl.constexpr,
    PAGE: tl.constexpr,
    PACKED: tl.constexpr,
    FOLD: tl.constexpr,
    MAXIMA: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Compute out and lse of ROWS rows over one part of their keys, as the forward does.

    Row r of a tile is query r // FOLD of head r % FOLD of the tile's FOLD heads, which share a key
    head. Grid: sequence * (head / FOLD) * tile of rows * part.

    Args:
        query, key, value: see ``tiles``; key and value are pages where PAGE.
        states: float32 [parts, B, H, Sq, V]. lses, maxima: float32 [parts, B, H, Sq].
        spans: with PACKED where each sequence's queries and keys begin, and its end; with PAGE
            the table of pages, lengths of keys, and the table's width.
        batches: of states.
        kv_length: the most keys that a sequence has.
        splits: parts. STEPS: tiles of keys of a part.
        CAUSAL: hide keys behind the query, the ends of queries and keys being aligned.
        PAGE: keys of a page; 0 without pages.
    """
    program = tl.program_id(0)
    split, program = program % splits, program // splits
    tile, program = program % tiles, program // tiles
    folded = heads // FOLD
    n, first_head = program // folded, program % folded * FOLD
    b, first_q, q_count, first, count = _sequence(n, spans, q_length, kv_length, PAGE, PACKED)
    block, virtual, end = row_tile(tile, q_count * FOLD, BLOCK * FOLD, ROWS)
    rows, inside = virtual // FOLD, virtual < end
    if FOLD > 1:
        h = (first_head + virtual % FOLD)[:, None]
        head_of = first_head + virtual % FOLD
    else:
        h = first_head
        head_of = first_head + rows * 0
    kv_head = first_head // group
    width = tl.arange(0, PADDED)
    places = b.to(tl.int64) * query[1] + head_of.to(tl.int64) * query[2]
    places = places + (first_q + rows).to(tl.int64) * query[3]
    places = places[:, None] + width.to(tl.int64)[None, :] * query[4]
    q_inside = inside[:, None] & (width < SIZE)[None, :]
    q = tl.load(query[0] + places, mask=q_inside, other=0.0)
    row, partial, steps = listed_steps(
        mask, n, first_head, block, kv_length if LISTS else count, LISTS, KEY_BLOCK, KEYS
    )
    begin, stop = split * STEPS, tl.minimum(split * STEPS + STEPS, steps)
    place = (n, b, h, kv_head, block, rows, inside, first, count, count - q_count)
    total = tl.zeros([ROWS, VALUE_PADDED], tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    greatest = tl.full([ROWS], float("-inf"), tl.float32)
    undefined = tl.zeros([ROWS], tl.int32)
    for step in range(begin, stop):
        scores, seen, v = _tile(
            *(step, q, key, value, mask, spans, captured, mask_captured, scale),
            *(place, row, partial, kv_length, SCORE, MASK, LISTS, CAUSAL, PAGE, PACKED),
            *(BLOCK, KEY_BLOCK, SIZE, PADDED, VALUE_SIZE, VALUE_PADDED, KEYS),
        )
        if MAXIMA:
            undefined = tl.maximum(undefined, tl.max(tl.where(seen & (scores != scores), 1, 0), 1))
        total, weight, greatest = accumulate(total, weight, greatest, scores, seen, v)
    base = tl.where(greatest == float("-inf"), 0.0, greatest)
    # A condition of constants, around one that is computed.
    # Triton 3.3 takes no chain of three.
    if (LISTS or CAUSAL) or MASK is not None:  # noqa: SIM102
        if tl.max(not_finite(total).to(tl.int32), 0) != 0:
            # Again, with hidden keys kept out; see ``exact``.
            total = tl.zeros([ROWS, VALUE_PADDED], tl.float32)
            for step in range(begin, stop):
                scores, seen, v = _tile(
                    *(step, q, key, value, mask, spans, captured, mask_captured, scale),
                    *(place, row, partial, kv_length, SCORE, MASK, LISTS, CAUSAL, PAGE, PACKED),
                    *(BLOCK, KEY_BLOCK, SIZE, PADDED, VALUE_SIZE, VALUE_PADDED, KEYS),
                )
                scores = tl.where(seen, scores * LOG2E, float("-inf"))
                total = product(tl.exp2(scores - base[:, None]), v, total, seen, True)
    empty = weight == 0.0
    divisor = tl.where(empty, 1.0, weight)
    at = (split.to(tl.int64) * batches + b) * heads + head_of
    at = at * q_length + first_q + rows
    tl.store(lses + at, tl.where(empty, float("-inf"), (base + tl.log2(divisor)) * _LN2), inside)
    if MAXIMA:
        top = tl.where(undefined == 0, greatest * _LN2, float("nan"))
        tl.store(maxima + at, top, mask=inside)
    width = tl.arange(0, VALUE_PADDED)
    places = at[:, None] * VALUE_SIZE + width[None, :]
    written = inside[:, None] & (width < VALUE_SIZE)[None, :]
    tl.store(states + places, total / divisor[:, None], mask=written)

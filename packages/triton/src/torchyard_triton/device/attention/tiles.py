"""What the passes of attention share: where a tile is, what it loads, which pairs it sees.

A tensor is passed as ``(pointer, batch stride, head stride, row stride, column stride)``, a mask as
``(partial counts, partial, full counts, full, bits, first, batches, heads, blocks, partial width,
full width)``: the fields of ``torchyard_attention.contract.MaskBlocks``, then sizes.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "by_column",
    "by_row",
    "filled",
    "head_start",
    "listed_keys",
    "listed_steps",
    "load_rows",
    "mask_row",
    "modified",
    "program_place",
    "row_places",
    "row_tile",
    "seen_pairs",
    "tiles_per_block",
    "visible",
]


@triton.jit
def program_place(tiles, heads):
    """Return tile, batch * head, batch and head of a program; tiles of one head are neighbours.

    A grid has one axis, since the others of some devices end at 65,535.
    """
    program = tl.program_id(0)
    batch_head = program // tiles
    return program % tiles, batch_head, batch_head // heads, batch_head % heads


@triton.jit
def tiles_per_block(length, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Return how many tiles a block has; a block longer than everything has no more than that."""
    return tl.cdiv(tl.minimum(length, BLOCK), TILE)


@triton.jit
def row_tile(tile, length, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Return a tile's block, its rows, and the first row that is not the tile's.

    Tiles do not cross blocks, whose size need not be a multiple of theirs. BLOCK 0: no blocks.
    """
    if BLOCK == 0:
        return tile * 0, tile * TILE + tl.arange(0, TILE), length
    else:
        per_block = tiles_per_block(length, BLOCK, TILE)
        block = tile // per_block
        rows = block * BLOCK + (tile % per_block) * TILE + tl.arange(0, TILE)
        return block, rows, tl.minimum(length, (block + 1) * BLOCK)


@triton.jit
def head_start(tensor, b, h):
    """Return the pointer to a batch's and head's first element."""
    return tensor[0] + b.to(tl.int64) * tensor[1] + h.to(tl.int64) * tensor[2]


@triton.jit
def row_places(tensor, rows, columns):
    """Return where elements [rows, columns] of a head are, from its first."""
    return rows.to(tl.int64)[:, None] * tensor[3] + columns.to(tl.int64)[None, :] * tensor[4]


@triton.jit
def load_rows(start, tensor, rows, end, SIZE: tl.constexpr, PADDED: tl.constexpr):
    """Return rows [rows, PADDED] of a head, 0 beyond ``end`` and SIZE."""
    columns = tl.arange(0, PADDED)
    inside = (rows < end)[:, None]
    if SIZE < PADDED:
        inside = inside & (columns < SIZE)[None, :]
    return tl.load(start + row_places(tensor, rows, columns), mask=inside, other=0.0)


@triton.jit
def mask_row(mask, b, h, block):
    """Return the number of a row of blocks in a mask's lists."""
    return ((b % mask[6]) * mask[7] + h % mask[7]).to(tl.int64) * mask[8] + block


@triton.jit
def by_row(x, TURNED: tl.constexpr):
    """Return what belongs to rows as it broadcasts with a tile [rows, columns], or a turned one."""
    if TURNED:
        return x[None, :]
    else:
        return x[:, None]


@triton.jit
def by_column(x, TURNED: tl.constexpr):
    """Return what belongs to columns as it broadcasts with a tile, or a turned one."""
    return by_row(x, not TURNED)


@triton.jit
def filled(rows, columns, VALUE: tl.constexpr, TYPE: tl.constexpr, TURNED: tl.constexpr):
    """Return a tile of one value."""
    if TURNED:
        return tl.full([columns.shape[0], rows.shape[0]], VALUE, TYPE)
    else:
        return tl.full([rows.shape[0], columns.shape[0]], VALUE, TYPE)


@triton.jit
def modified(raw, b, h, rows, columns, captured, SCORE: tl.constexpr, TURNED: tl.constexpr = False):
    """Return the scores [rows, columns] that a program makes of raw ones; None leaves them."""
    if SCORE is None:
        return raw
    else:
        q, k = by_row(rows, TURNED), by_column(columns, TURNED)
        score = SCORE(raw, b, h, q, k, captured)
        return score + tl.zeros_like(raw)


@triton.jit
def visible(
    mask,
    slot,
    block,
    key_block,
    b,
    h,
    rows,
    columns,
    captured,
    whole,
    BLOCK: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    MASK: tl.constexpr,
    LISTS: tl.constexpr,
    TURNED: tl.constexpr = False,
):
    """Return which pairs of a tile are visible: by a program where there is one, else by bits.

    A tile is [rows, columns]; turned, [columns, rows]. Of a block that is visible whole nothing
    is computed or read, and nothing is said.
    """
    if MASK is not None:
        q, k = by_row(rows, TURNED), by_column(columns, TURNED)
        seen = filled(rows, columns, False, tl.int1, TURNED)
        if not whole:
            zero = filled(rows, columns, 0.0, tl.float32, TURNED)
            seen = MASK(zero, b, h, q, k, captured) & (zero == 0.0)
        return seen
    elif LISTS:
        BYTES: tl.constexpr = (KEY_BLOCK + 7) // 8
        if whole:
            octets = filled(rows, columns, 0, tl.int32, TURNED)
        else:
            inner, key = rows - block * BLOCK, columns - key_block * KEY_BLOCK
            places = by_row(inner, TURNED) * BYTES + by_column(key // 8, TURNED)
            # Whatever calls this without `whole`: blocks that are visible whole have no slot.
            inside = (
                by_row(inner < BLOCK, TURNED) & by_column(key < KEY_BLOCK, TURNED) & (slot >= 0)
            )
            start = mask[4] + slot.to(tl.int64) * (BLOCK * BYTES)
            octets = tl.load(start + places, mask=inside, other=0).to(tl.int32)
            octets = (octets >> by_column(key % 8, TURNED)) & 1
        return octets != 0
    else:
        return filled(rows, columns, True, tl.int1, TURNED)


@triton.jit
def seen_pairs(
    mask,
    slot,
    block,
    key_block,
    b,
    h,
    rows,
    columns,
    captured,
    whole,
    end,
    stop,
    BLOCK: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    MASK: tl.constexpr,
    LISTS: tl.constexpr,
    TURNED: tl.constexpr = False,
    EXACT: tl.constexpr = False,
):
    """Return which pairs of a tile take part: visible ones, or all of a whole block, inside of it.

    Args:
        whole: whether the block is one of whole ones.
        end, stop: the first row and the first column that are not the tile's.
    """
    # The branch that spares whole blocks costs registers, and exact passes need no speed.
    spared = False if EXACT else whole
    seen = visible(
        *(mask, slot, block, key_block, b, h, rows, columns, captured),
        *(spared, BLOCK, KEY_BLOCK, MASK, LISTS, TURNED),
    )
    return (seen | whole) & by_column(columns < stop, TURNED) & by_row(rows < end, TURNED)


@triton.jit
def listed_steps(
    mask,
    b,
    h,
    block,
    length,
    LISTS: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Return a row of blocks, how many of its steps are those of partial blocks, and how many all.

    Without lists: every tile of ``length`` keys is partial.
    """
    if LISTS:
        row = mask_row(mask, b, h, block)
        per_block = tiles_per_block(length, KEY_BLOCK, KEYS)
        partial = tl.load(mask[0] + row) * per_block
        return row, partial, partial + tl.load(mask[2] + row) * per_block
    else:
        steps = tl.cdiv(length, KEYS)
        return block, steps, steps


@triton.jit
def listed_keys(
    mask,
    row,
    step,
    partial,
    kv_length,
    LISTS: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Return what step of a row of blocks computes: block, slot of its bits, columns, their end.

    The first ``partial`` steps are those of partial blocks, then come whole ones.
    """
    if LISTS:
        per_block = tiles_per_block(kv_length, KEY_BLOCK, KEYS)
        is_partial = step < partial
        place = tl.where(is_partial, step, step - partial) // per_block
        pointer = tl.where(
            is_partial, mask[1] + row * mask[9] + place, mask[3] + row * mask[10] + place
        )
        block = tl.load(pointer)
        inner = (step % per_block) * KEYS
        columns = block * KEY_BLOCK + inner + tl.arange(0, KEYS)
        end = tl.minimum(kv_length, (block + 1) * KEY_BLOCK)
        slot = tl.where(is_partial, tl.load(mask[5] + row) + place, -1)
        return block, slot, columns, end
    else:
        return row * 0, row * 0, step * KEYS + tl.arange(0, KEYS), kv_length

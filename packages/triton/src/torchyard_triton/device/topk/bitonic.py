"""The selection of a short row by a bitonic network, which leaves it sorted."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.topk.elements import loaded

__all__ = ["topk_bitonic"]


@triton.jit
def topk_bitonic(
    x,
    mask,
    mapped,
    values,
    indices,
    k,
    length,
    x_row,
    x_column,
    mask_row,
    mask_column,
    absent,
    INFINITY: tl.constexpr,
    BITS: tl.constexpr,
    LARGEST: tl.constexpr,
    LAST: tl.constexpr,
    BY_INDEX: tl.constexpr,
    MASKED: tl.constexpr,
    MAPPED: tl.constexpr,
    TILE: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Select the first k of one row, best first; BY_INDEX: in the order of their indices.

    Rank and place of an element are one number, so that no two are equal, and Triton's bitonic
    top-k orders them within registers and between the threads of a warp. Grid: rows.

    Arguments as of ``topk_select``, without offsets, parts and ranks; elements of 64 bits have no
    place left beside their rank.

    Args:
        TILE: a power of two, ``length`` or more, and fewer than 32768.
        PADDED: a power of two, k or more, at most TILE.
    """
    row = tl.program_id(0).to(tl.int64)
    values, indices = values + row * (1 if LAST else k), indices + row * (1 if LAST else k)
    x, mask, mapped = x + row * x_row, mask + row * mask_row, mapped + row * length
    at = tl.arange(0, TILE)
    _, rank, seen = loaded(
        *(x, mask, mapped, at, length, x_column, mask_column),
        *(INFINITY, BITS, LARGEST, MASKED, MAPPED),
    )
    WIDE: tl.constexpr = tl.int64 if BITS == 32 else tl.int32
    PLACE: tl.constexpr = 31 if BITS == 32 else 15
    # Of equal ranks the lower place is the greater number; 0 is no element's.
    key = tl.where(seen, (rank.to(WIDE) << PLACE) | (TILE - at).to(WIDE), 0)
    best = tl.topk(key, PADDED)
    place = tl.arange(0, PADDED)
    there = (best > 0) & (place < k)
    order = TILE - (best & ((1 << PLACE) - 1)).to(tl.int32)
    if BY_INDEX:
        order = tl.sort(tl.where(there, order, TILE))
        there = order < TILE
    index = order.to(tl.int64)
    if MAPPED:
        index = tl.load(mapped + order, mask=there, other=-1)
    bits = tl.load(x + order.to(tl.int64) * x_column, mask=there, other=0)
    bits = tl.where(there, bits, tl.zeros([PADDED], bits.dtype) + absent)
    index = tl.where(there, index, -1)
    if LAST:
        tl.store(values + tl.zeros_like(place), bits, mask=place == k - 1)
        tl.store(indices + tl.zeros_like(place), index, mask=place == k - 1)
    else:
        tl.store(values + place, bits, mask=place < k)
        tl.store(indices + place, index, mask=place < k)

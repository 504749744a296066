"""The selection of a part that a program holds in registers: the last one's rank, bit by bit."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.topk.elements import fill_absent, loaded, store_chosen

__all__ = ["topk_count"]


@triton.jit
def topk_count(
    x,
    mask,
    mapped,
    values,
    indices,
    ranks,
    k,
    length,
    part,
    x_row,
    x_column,
    mask_row,
    mask_column,
    absent,
    INFINITY: tl.constexpr,
    BITS: tl.constexpr,
    LARGEST: tl.constexpr,
    LAST: tl.constexpr,
    MASKED: tl.constexpr,
    MAPPED: tl.constexpr,
    TILE: tl.constexpr,
):
    """Select the first k of one part of one row, in the order of their indices.

    Every element is read once. The rank of the last one is the greatest that k elements reach: its
    bits are found from the highest down, each by one count of a whole tile. Nothing is added to
    shared memory by many threads, as a histogram is. Grid: rows, parts of a row.

    Arguments as of ``topk_select``, without offsets.

    Args:
        TILE: a power of two, ``part`` or more, at most 32768.
    """
    row = tl.program_id(0).to(tl.int64)
    place = (row * tl.num_programs(1) + tl.program_id(1)) * (1 if LAST else k)
    values, indices, ranks = values + place, indices + place, ranks + place
    x, mask, mapped = x + row * x_row, mask + row * mask_row, mapped + row * length
    first = tl.program_id(1) * part
    # Loads of four elements, whatever an element's bytes and the mask's: what threads hold would
    # differ between loads, and go from one to another by shared memory, which halves how many waves
    # of AMD's GPUs run at once.
    at = tl.max_contiguous(first + tl.arange(0, TILE), 4)
    bits, rank, seen = loaded(
        *(x, mask, mapped, at, tl.minimum(first + part, length), x_column, mask_column),
        *(INFINITY, BITS, LARGEST, MASKED, MAPPED),
    )
    found = tl.sum(seen.to(tl.int32), 0)
    wanted = tl.minimum(k, found)
    # No bound below is 0: what is not seen reaches none of them.
    reached = tl.where(seen, rank, 0)
    UNSIGNED: tl.constexpr = tl.uint64 if BITS == 64 else tl.uint32
    limit = tl.full((), 0, UNSIGNED)
    bit = tl.full((), 1 << (BITS - 1), UNSIGNED)
    for _ in range(BITS):
        enough = tl.sum((reached >= (limit | bit)).to(tl.int32), 0) >= wanted
        limit = tl.where(enough, limit | bit, limit)
        bit = bit >> 1
    before = seen & (rank > limit)
    equal = seen & (rank == limit)
    wanted -= tl.sum(before.to(tl.int32), 0)
    # Both are counted at once, in 16 bits each.
    counts = tl.cumsum((before.to(tl.uint32) << 16) + equal.to(tl.uint32), 0)
    number = (counts & 0xFFFF).to(tl.int32)
    to = (counts >> 16).to(tl.int32) + tl.minimum(number, wanted) - 1
    if LAST:
        keep = equal & (number == wanted) & (found >= k)
        to = tl.zeros_like(to)
        written = tl.sum(keep.to(tl.int32), 0)
    else:
        keep = before | (equal & (number <= wanted))
        written = tl.minimum(k, found)
    store_chosen(values, indices, ranks, mapped, at, to, bits, rank, keep, BITS, MAPPED)
    fill_absent(values, indices, ranks, written, 1 if LAST else k, absent, BITS, 256)

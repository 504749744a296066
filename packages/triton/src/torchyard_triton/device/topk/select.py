"""The selection: the rank of the last one by its digits, then all before it, in one order."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.topk.elements import fill_absent, loaded, store_chosen

__all__ = ["topk_select"]


@triton.jit
def topk_select(
    x,
    mask,
    offsets,
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
    SEGMENTED: tl.constexpr,
    MAPPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Select the first k of one part of one row, in the order of their indices.

    The rank of the last one is found digit by digit from histograms of 8 bits (a radix selection);
    of the elements that have it, those of the lowest indices are taken. Grid: rows, parts of a row.

    Args:
        x: the elements' bits as integers; x_row, x_column: its strides.
        mask: bool, read where MASKED, with its own strides.
        offsets: int64, read where SEGMENTED: row r is from offsets[r] to offsets[r + 1] of x.
        mapped: int64 [rows, length], read where MAPPED: the index that an element has; below 0
            there is none.
        values, indices, ranks: [rows, parts, k] contiguous, x's integers, int64, and int32 or, of
            64 bits, int64: the bits, indices and signed ranks; where there are no k, ``absent``, -1
            and the least rank. Where LAST, [rows, parts, 1]: the k-th alone.
        length: of a row. part: elements of a part of a row.
    """
    row = tl.program_id(0).to(tl.int64)
    place = (row * tl.num_programs(1) + tl.program_id(1)) * (1 if LAST else k)
    values, indices, ranks = values + place, indices + place, ranks + place
    x, mask, mapped = x + row * x_row, mask + row * mask_row, mapped + row * length
    first, end = 0, length
    if SEGMENTED:
        first = tl.load(offsets + row).to(tl.int32)
        end = tl.load(offsets + row + 1).to(tl.int32)
    first = first + tl.program_id(1) * part
    # Whole numbers of 32 bits: the end of a part may be beyond them.
    stop = first + tl.minimum(part, end - first)
    UNSIGNED: tl.constexpr = tl.uint64 if BITS == 64 else tl.uint32
    limit = tl.full((), 0, UNSIGNED)
    wanted = k
    found = k
    bins = tl.arange(0, 256)
    for digit in tl.static_range(BITS // 8):
        shift = BITS - 8 - 8 * digit
        counts = tl.zeros([256], tl.int32)
        for begin in range(first, stop, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            _, rank, seen = loaded(
                *(x, mask, mapped, at, stop, x_column, mask_column),
                *(INFINITY, BITS, LARGEST, MASKED, MAPPED),
            )
            if digit > 0:
                seen = seen & ((rank >> (shift + 8)) == limit)
            counts += tl.histogram(((rank >> shift) & 255).to(tl.int32), 256, mask=seen)
        total = tl.sum(counts, 0)
        if digit == 0:
            found = total
            wanted = tl.minimum(k, total)
        before = total - tl.cumsum(counts, 0)
        chosen = (before < wanted) & (before + counts >= wanted)
        wanted -= tl.sum(tl.where(chosen, before, 0), 0)
        chosen_bin = tl.sum(tl.where(chosen, bins, 0), 0)
        limit = (limit << 8) | chosen_bin.to(UNSIGNED)
    taken, written = 0, 0
    for begin in range(first, stop, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        bits, rank, seen = loaded(
            *(x, mask, mapped, at, stop, x_column, mask_column),
            *(INFINITY, BITS, LARGEST, MASKED, MAPPED),
        )
        equal = seen & (rank == limit)
        number = taken + tl.cumsum(equal.to(tl.int32), 0)
        if LAST:
            keep = equal & (number == wanted) & (found >= k)
        else:
            keep = (seen & (rank > limit)) | (equal & (number <= wanted))
        to = written + tl.cumsum(keep.to(tl.int32), 0) - 1
        store_chosen(values, indices, ranks, mapped, at, to, bits, rank, keep, BITS, MAPPED)
        taken += tl.sum(equal.to(tl.int32), 0)
        written += tl.sum(keep.to(tl.int32), 0)
    fill_absent(values, indices, ranks, written, 1 if LAST else k, absent, BITS, BLOCK)

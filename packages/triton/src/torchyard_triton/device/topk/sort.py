"""The sort of what was selected, best first."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["topk_sort"]


@triton.jit
def topk_sort(values, indices, ranks, sorted_values, sorted_indices, k, PADDED: tl.constexpr):
    """Order one row of k by rank, greatest first; equal ranks keep their order. Grid: rows.

    Args:
        values, indices: [rows, k] contiguous. ranks: int32, likewise.
        sorted_values, sorted_indices: likewise, written.
        PADDED: a power of two, k or more.
    """
    start = tl.program_id(0).to(tl.int64) * k
    at = tl.arange(0, PADDED)
    rank = tl.load(ranks + start + at, mask=at < k, other=0)
    # No two are equal: the place, below, decides between equal ranks.
    key = ((~rank).to(tl.int64) << 32) | at.to(tl.int64)
    key = tl.where(at < k, key, 0x7FFFFFFFFFFFFFFF)
    order = tl.sort(key) & 0xFFFFFFFF
    inside = order < k
    value = tl.load(values + start + order, mask=inside, other=0)
    index = tl.load(indices + start + order, mask=inside, other=-1)
    tl.store(sorted_values + start + at, value, mask=at < k)
    tl.store(sorted_indices + start + at, index, mask=at < k)

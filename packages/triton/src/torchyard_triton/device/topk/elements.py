"""Elements of a row: how they are read, and how those that are kept are written."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.topk.ranks import rank_of

__all__ = ["fill_absent", "loaded", "store_chosen"]


@triton.jit
def loaded(
    x,
    mask,
    mapped,
    at,
    stop,
    x_column,
    mask_column,
    INFINITY: tl.constexpr,
    BITS: tl.constexpr,
    LARGEST: tl.constexpr,
    MASKED: tl.constexpr,
    MAPPED: tl.constexpr,
):
    """Return bits, ranks, and whether elements are there and to be seen."""
    inside = at < stop
    bits = tl.load(x + at.to(tl.int64) * x_column, mask=inside, other=0)
    if MASKED:
        inside = inside & (tl.load(mask + at.to(tl.int64) * mask_column, mask=inside, other=0) != 0)
    if MAPPED:
        inside = inside & (tl.load(mapped + at, mask=inside, other=-1) >= 0)
    return bits, rank_of(bits, INFINITY, BITS, LARGEST), inside


@triton.jit
def store_chosen(
    values,
    indices,
    ranks,
    mapped,
    at,
    to,
    bits,
    rank,
    keep,
    BITS: tl.constexpr,
    MAPPED: tl.constexpr,
):
    """Write those of a block that are kept, each to its place ``to``."""
    index = at.to(tl.int64)
    if MAPPED:
        index = tl.load(mapped + at, mask=keep, other=-1)
    if BITS >= 32:
        SIGNED: tl.constexpr = tl.int64 if BITS == 64 else tl.int32
        signed = (rank ^ (1 << (BITS - 1))).to(SIGNED, bitcast=True)
    else:
        signed = rank.to(tl.int32)
    tl.store(values + to, bits, mask=keep)
    tl.store(indices + to, index, mask=keep)
    tl.store(ranks + to, signed, mask=keep)


@triton.jit
def fill_absent(
    values, indices, ranks, written, width, absent, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    """Write what stands for no element to the places from ``written`` on."""
    for begin in range(written, width, BLOCK):
        to = begin + tl.arange(0, BLOCK)
        beyond = to < width
        tl.store(values + to, tl.zeros([BLOCK], values.dtype.element_ty) + absent, mask=beyond)
        tl.store(indices + to, tl.full([BLOCK], -1, tl.int64), mask=beyond)
        LEAST: tl.constexpr = 0 if BITS < 32 else -(1 << (BITS - 1))
        tl.store(ranks + to, tl.full([BLOCK], LEAST, ranks.dtype.element_ty), mask=beyond)

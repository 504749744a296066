"""Tiles of weights, from each form that ``linear/1`` has them in.

A weight is passed as ``(pointer, scales, zeros, batch stride, row stride, column stride, words,
outputs)``:
the strides are those of a plain one, the words those of a panel of a packed one.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["weight_tile"]


@triton.jit
def weight_tile(
    weight,
    batch,
    depth,
    outputs,
    inside,
    first_depth,
    groups,
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ZEROS: tl.constexpr,
    dtype: tl.constexpr,
):
    """Return W[n, k] for products k [D, 1] and outputs n [1, N] as a tile [D, N] of a dtype.

    Args:
        depth, outputs: int32. inside: where the tile is within the weight; 0 elsewhere.
        first_depth: the tile's first product; all products of a tile are of one group.
        groups: scales of an output.
        FORM: ``plain``, ``panels1`` or ``panels2`` (with so many products side by side), ``int8``
            or ``int4``: see ``torchyard_kernels.linear.contract``.
        GROUP: products of a group; 0: all. ZEROS: whether codes have zeros of their own.
    """
    k, n = depth.to(tl.int64), outputs.to(tl.int64)
    if FORM == "plain":
        places = batch.to(tl.int64) * weight[3] + n * weight[4] + k * weight[5]
        tile = tl.load(weight[0] + places, mask=inside, other=0.0)
    elif FORM == "panels1":
        places = ((n // 32) * weight[6] + k) * 32 + n % 32
        tile = tl.load(weight[0] + places, mask=inside, other=0.0)
    elif FORM == "panels2":
        places = ((n // 32) * weight[6] + k // 2) * 64 + (n % 32) * 2 + k % 2
        tile = tl.load(weight[0] + places, mask=inside, other=0.0)
    else:
        if FORM == "int8":
            places = ((n // 64) * weight[6] + k // 4) * 256 + (n % 64) * 4 + k % 4
            codes = tl.load(weight[0] + places, mask=inside, other=0).to(tl.int32)
        else:
            places = ((n // 64) * weight[6] + k // 8) * 256 + (n % 64) * 4 + k % 4
            both = tl.load(weight[0] + places, mask=inside, other=0).to(tl.int32)
            codes = (both >> (4 * ((depth // 4) % 2))) & 15
        group = 0
        if GROUP:
            group = first_depth // GROUP
        places = ((n // 64) * groups + group) * 64 + n % 64
        within = outputs < weight[7]
        scale = tl.load(weight[1] + places, mask=within, other=0.0).to(tl.float32)
        if ZEROS:
            zero = tl.load(weight[2] + places, mask=within, other=0).to(tl.int32)
        else:
            zero = 128 if FORM == "int8" else 8
        tile = tl.where(inside, (codes - zero).to(tl.float32) * scale, 0.0)
    return tile.to(dtype)

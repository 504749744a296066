"""The order of ``topk/1`` as unsigned numbers: an element of greater rank comes first."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["rank_of"]


@triton.jit
def rank_of(bits, INFINITY: tl.constexpr, BITS: tl.constexpr, LARGEST: tl.constexpr):
    """Return ranks of elements, given as integers of their bits: equal elements have equal ranks.

    Args:
        bits: integers of BITS bits; uint8 where elements are unsigned.
        INFINITY: the bits of the floating point dtype's infinity; 0 where elements are integers.
        LARGEST: whether the greatest elements come first.

    Returns:
        uint32, or uint64 where BITS is 64.
    """
    WIDE: tl.constexpr = tl.int64 if BITS == 64 else tl.int32
    UNSIGNED: tl.constexpr = tl.uint64 if BITS == 64 else tl.uint32
    MAGNITUDE: tl.constexpr = (1 << (BITS - 1)) - 1
    ALL: tl.constexpr = (1 << BITS) - 1
    SIGN: tl.constexpr = 1 << (BITS - 1)
    if bits.dtype == tl.uint8:
        rank = bits.to(UNSIGNED)
    else:
        number = bits.to(WIDE)
        if INFINITY:
            magnitude = number & MAGNITUDE
            nan = magnitude > INFINITY
            # Of negative numbers the greater magnitude is the lesser number; zeros are equal.
            number = tl.where(number < 0, number ^ MAGNITUDE, number)
            number = tl.where(magnitude == 0, 0, number)
            number = tl.where(nan, MAGNITUDE, number)
        if BITS >= 32:
            rank = number.to(UNSIGNED, bitcast=True) ^ SIGN
        else:
            rank = (number + SIGN).to(UNSIGNED)
    if not LARGEST:
        rank = rank ^ ALL
    return rank

"""Division that rounds, rounding, and powers of integers, as torch defines them."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "floor_divide",
    "fmod",
    "integer_floor_divide",
    "integer_fmod",
    "integer_power",
    "integer_remainder",
    "integer_trunc_divide",
    "remainder",
    "round_even",
    "sign",
    "trunc",
]


@triton.jit
def trunc(x):
    return tl.where(x < 0.0, -tl.floor(-x), tl.floor(x))


@triton.jit
def round_even(x):
    """Return the nearest whole number; of two the even one."""
    low = tl.floor(x)
    rest = x - low
    odd = low - 2.0 * tl.floor(low * 0.5)
    up = tl.where(rest > 0.5, 1.0, tl.where(rest == 0.5, odd, 0.0))
    # Whole numbers and infinities, of which the difference would be NaN, stay.
    return tl.where(low == x, x, low + up)


@triton.jit
def sign(x):
    """Return -1, 0 or 1; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def fmod(x, y):
    """Return x - trunc(x / y) y, by float64: exact while the quotient is below 2^29."""
    x, y = tl.broadcast(x, y)
    wide, by = x.to(tl.float64), tl.abs(y).to(tl.float64)
    rest = tl.fma(-trunc(wide / by), by, wide)
    # The quotient was rounded: it may be one too far from 0.
    rest = tl.where((rest != 0.0) & ((rest < 0.0) != (wide < 0.0)), rest + _signed(by, wide), rest)
    rest = tl.where((by == float("inf")) & (tl.abs(wide) < float("inf")), wide, rest)
    return rest.to(x.dtype)


@triton.jit
def _signed(size, x):
    return tl.where(x < 0.0, -size, size)


@triton.jit
def remainder(x, y):
    """Return x - floor(x / y) y, which has y's sign."""
    x, y = tl.broadcast(x, y)
    rest = fmod(x, y)
    return tl.where((rest != 0.0) & ((rest < 0.0) != (y < 0.0)), rest + y, rest)


@triton.jit
def floor_divide(x, y):
    """Return floor(x / y) as Python defines it, corrected by the exact remainder."""
    x, y = tl.broadcast(x, y)
    rest = fmod(x, y)
    quotient = (x - rest) / y
    quotient = tl.where((rest != 0.0) & ((rest < 0.0) != (y < 0.0)), quotient - 1.0, quotient)
    low = tl.floor(quotient)
    low = tl.where(quotient - low > 0.5, low + 1.0, low)
    return tl.where(y == 0.0, x / y, low)


@triton.jit
def _c_divide(x, y):
    """Return the quotient rounded to 0; of a division by 0, which torch refuses, 0."""
    return tl.where(y == 0, 0, x // tl.where(y == 0, 1, y))


@triton.jit
def integer_trunc_divide(x, y):
    return _c_divide(x, y)


@triton.jit
def integer_fmod(x, y):
    return x - _c_divide(x, y) * y


@triton.jit
def integer_remainder(x, y):
    x, y = tl.broadcast(x, y)
    rest = x - _c_divide(x, y) * y
    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


@triton.jit
def integer_floor_divide(x, y):
    x, y = tl.broadcast(x, y)
    quotient = _c_divide(x, y)
    rest = x - quotient * y
    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)


@triton.jit
def integer_power(x, y):
    """Return x^y by squaring, with integers' wrap-around; 1 / x^-y, rounded to 0, below 0."""
    result = x * 0 + y * 0 + 1
    base = x + y * 0
    left = tl.where(y < 0, 0, y) + x * 0
    for _ in tl.static_range(63):
        result = tl.where((left & 1) != 0, result * base, result)
        base = base * base
        left = left >> 1
    odd = tl.where((y & 1) != 0, -1, 1)
    negative = tl.where(x == 1, 1, tl.where(x == -1, odd, 0))
    return tl.where(y < 0, negative.to(result.dtype), result)

"""Which values an integer of a score program can have, from the ranges of queries and keys."""

from __future__ import annotations

from typing import Final

__all__ = ["INT32", "INT64", "Interval", "fits_int32", "interval_of"]

Interval = tuple[int, int]

INT32: Final[Interval] = (-(2**31), 2**31 - 1)
INT64: Final[Interval] = (-(2**63), 2**63 - 1)
_WHOLE: Final = {"int32": INT32, "int64": INT64}


def fits_int32(interval: Interval) -> bool:
    """Return whether int32 holds every value."""
    return INT32[0] <= interval[0] and interval[1] <= INT32[1]


def interval_of(word: str, dtype: str, args: tuple[Interval, ...], data: int | None) -> Interval:
    """Return the range of an integer operation's result.

    Args:
        word: ``add``, ``sub``, ``mul``, ``min``, ``max``, ``where`` (of its two choices), ``and``,
            ``or``, ``xor``, ``floor_divide`` or ``remainder``.
        dtype: ``int32`` or ``int64``; a result that it does not hold wraps around.
        args: the operands' ranges.
        data: the divisor.
    """
    whole = _WHOLE[dtype]
    (low, high), (other_low, other_high) = args[0], args[-1]
    if word == "add":
        found = low + other_low, high + other_high
    elif word == "sub":
        found = low - other_high, high - other_low
    elif word == "mul":
        products = [a * b for a in args[0] for b in args[1]]
        found = min(products), max(products)
    elif word == "min":
        found = min(low, other_low), min(high, other_high)
    elif word == "max":
        found = max(low, other_low), max(high, other_high)
    elif word == "where":
        found = min(low, other_low), max(high, other_high)
    elif word == "floor_divide":
        assert data is not None
        quotients = low // data, high // data
        found = min(quotients), max(quotients)
    elif word == "remainder":
        assert data is not None
        if low >= 0 and high < data:
            found = low, high
        else:
            found = (0, data - 1) if data > 0 else (data + 1, 0)
    else:
        found = _bitwise(word, args, whole)
    return found if whole[0] <= found[0] and found[1] <= whole[1] else whole


def _bitwise(word: str, args: tuple[Interval, ...], whole: Interval) -> Interval:
    if min(args[0][0], args[1][0]) < 0:
        return whole
    if word == "and":
        return 0, min(args[0][1], args[1][1])
    return 0, (1 << max(args[0][1], args[1][1]).bit_length()) - 1

"""Sizes in requests: how they are rounded."""

from __future__ import annotations

__all__ = ["rounded_up"]


def rounded_up(size: int) -> int:
    """Return a size as requests have it: exact up to 16, above that the next power of two.

    So a decision holds for all sizes of a bucket, and few requests stand for many calls.
    """
    return size if size <= 16 else 1 << (size - 1).bit_length()

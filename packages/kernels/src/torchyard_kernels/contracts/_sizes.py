"""Sizes in requests: how they are rounded, and how they are read from text."""

from __future__ import annotations

__all__ = ["parse_sizes", "rounded_up"]


def rounded_up(size: int) -> int:
    """Return a size as requests have it: exact up to 16, above that the next power of two.

    So a decision holds for all sizes of a bucket, and few requests stand for many calls.
    """
    return size if size <= 16 else 1 << (size - 1).bit_length()


def parse_sizes(name: str, text: str, count: int) -> list[int]:
    """Return the ``count`` sizes of a text such as ``1,2048,64``.

    Args:
        name: the field, for the message.

    Raises:
        ValueError: other than ``count`` whole numbers, or one below 0.
    """
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count or any(value < 0 for value in values):
        raise ValueError(f"{name}: expected {count} sizes with commas between, got {text!r}")
    return values

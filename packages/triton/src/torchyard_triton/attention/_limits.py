"""How long and how many what kernels compute may be: their index arithmetic is int32's."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_COUNT", "MAX_LENGTH", "beyond_limits", "programs_of"]

# Differences of such lengths, and sums of a few, are int32's; the recorded programs rely on it.
MAX_LENGTH: Final = 2**28
MAX_COUNT: Final = 2**20
_MAX_BLOCK: Final = 2**30
# No tile has fewer rows, unless its block has.
_SMALLEST: Final = 16


def beyond_limits(
    batch: int, heads: int, lengths: tuple[int, int], block_size: tuple[int, int]
) -> str:
    """Return which size of a call is too large and what it may be; empty where none is."""
    sizes = (
        ("batch", batch, MAX_COUNT),
        ("q_heads", heads, MAX_COUNT),
        ("q_length", lengths[0], MAX_LENGTH),
        ("kv_length", lengths[1], MAX_LENGTH),
        ("block_size", max(block_size), _MAX_BLOCK),
    )
    for name, size, most in sizes:
        if size > most:
            return f"{name}: expected at most {most}, since indices are int32, got {size}"
    return ""


def programs_of(
    batch: int, heads: int, lengths: tuple[int, int], block_size: tuple[int, int]
) -> int:
    """Return how many programs a pass over a call has at most."""
    tiles = (
        -(-length // min(_SMALLEST, block or _SMALLEST))
        for length, block in zip(lengths, block_size, strict=True)
    )
    return batch * heads * max(1, *tiles)

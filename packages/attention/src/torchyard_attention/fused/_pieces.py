"""A call as pieces of which each kernel computes the same causal mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Piece", "pieces"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a call whose keys are a prefix.

    Attributes:
        rows: from, to.
        keys: how many of the first keys the rows see.
        causal: whether row i of them sees keys up to i alone; rows and keys are then as many.
    """

    rows: tuple[int, int]
    keys: int
    causal: bool


def pieces(q_length: int, kv_length: int, causal: bool) -> Iterator[Piece]:
    """Yield pieces that together are the call: the kernels differ in how they align the mask.

    Where rows and keys are as many, there is one way.
    """
    if not causal:
        yield Piece((0, q_length), kv_length, False)
        return
    square = min(q_length, kv_length)
    yield Piece((0, square), square, True)
    if q_length > kv_length:
        yield Piece((square, q_length), kv_length, False)

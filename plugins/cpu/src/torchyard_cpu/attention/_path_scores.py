"""Score programs on the fast path: for which calls a program's steps are those of the forward."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from torchyard_attention.contract import ScoreMod
from torchyard_cpu._programs.binding import CapturedShape
from torchyard_cpu._programs.encoding import WORDS, EncodedScore, NativeScore
from torchyard_cpu._tensor_reader import TENSOR_DTYPES
from torchyard_cpu.attention._score_program import captured_shapes, encoded_score

__all__ = ["PathProgram", "path_score"]

_Sizes: TypeAlias = tuple[int, int, int, int]
# What an attention path's enable takes after the text.
PathProgram: TypeAlias = tuple[bytes, bytes, NativeScore, bytes]

# The native code's places: kMaxScoreCaptured, kMaxScoreSteps, kMaxTensorDim.
_MOST_CAPTURED: Final = 6
_MOST_STEPS: Final = 64
_MOST_DIMENSIONS: Final = 8

# Requests have sizes up to this one as they are, and powers of two in place of larger ones.
_EXACT: Final = 16


def path_score(score_mod: ScoreMod, sizes: _Sizes) -> PathProgram | None:
    """Return a program, and the sizes and captured tensors that it supports; None where it has
    more steps or tensors than native code has places.

    Args:
        score_mod: the traced function.
        sizes: B, Hq, Sq, Sk of a call.
    """
    captured = captured_shapes(score_mod)
    if len(captured) > _MOST_CAPTURED or any(
        len(shape.sizes) > _MOST_DIMENSIONS for shape in captured
    ):
        return None
    encoded = encoded_score(score_mod.text, captured, sizes)
    if sum(encoded.counts) > _MOST_STEPS:
        return None
    least, most = _range(score_mod.text, captured, sizes, encoded)
    bounds = [*(least[i] for i in (0, 2, 3)), *(most[i] for i in (0, 2, 3))]
    addresses = [n for position, tensor in encoded.addresses for n in (position // WORDS, tensor)]
    return (
        array("q", bounds).tobytes(),
        array("q", [word for shape in captured for word in _record(shape)]).tobytes(),
        encoded.at([0] * len(captured)),
        array("q", addresses).tobytes(),
    )


def _record(shape: CapturedShape) -> list[int]:
    narrow = shape.dtype == "narrow"
    dtype = TENSOR_DTYPES.index("int64" if narrow else shape.dtype)
    room = [0] * (_MOST_DIMENSIONS - len(shape.sizes))
    return [dtype, narrow, len(shape.sizes), *shape.sizes, *room, *shape.strides, *room]


def _range(
    text: str, captured: Sequence[CapturedShape], sizes: _Sizes, encoded: EncodedScore
) -> tuple[_Sizes, _Sizes]:
    """Return the least and the most sizes for which the steps are those of the call's sizes.

    Steps are chosen by what the integers' ranges prove, and ranges grow with the sizes: if the
    steps are the same for the least and for the most, they are between.
    """

    def same(other: _Sizes) -> bool:
        try:
            return encoded_score(text, tuple(captured), other) == encoded
        except IndexError:
            return False

    batch, heads, rows, keys = sizes
    least = _least(batch), heads, _least(rows), _least(keys)
    most = _most(batch), heads, _most(rows), _most(keys)
    if same(most):
        return (least if same(least) else sizes), most
    # A table of as many rows or keys as a cache has room for.
    for room in _between(captured, keys, most[3]):
        grown = batch, heads, rows, room
        if same(grown):
            return sizes, grown
    return sizes, sizes


def _between(captured: Sequence[CapturedShape], low: int, high: int) -> Iterator[int]:
    found = {size for shape in captured for size in shape.sizes if low < size < high}
    yield from sorted(found, reverse=True)


def _least(size: int) -> int:
    """Return the least size that a request rounds to the same as this one."""
    most = _most(size)
    return size if size <= _EXACT else max(_EXACT, most // 2) + 1


def _most(size: int) -> int:
    """Return the size that requests have for this one."""
    return size if size <= _EXACT else max(2 * _EXACT, 1 << (size - 1).bit_length())

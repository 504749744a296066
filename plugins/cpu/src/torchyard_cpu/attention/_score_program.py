"""A call's score_mod, and its derivatives, as the native kernels take them."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import ScoreMod
from torchyard_cpu._addresses import address, addresses
from torchyard_cpu._programs.binding import CapturedShape, bind
from torchyard_cpu._programs.encoding import (
    EncodedGradient,
    EncodedScore,
    NativeScore,
    encode,
    encode_gradient,
)
from torchyard_cpu._programs.gradient import DifferentiatedScore, differentiate
from torchyard_cpu._programs.intervals import fits_int32
from torchyard_cpu._programs.lowering import lower
from torchyard_cpu._programs.sites import bind_gradient

__all__ = ["ScoreGradients", "captured_shapes", "encoded_score", "native_score"]

_Sizes = tuple[int, int, int, int]
NativeGradient = tuple[int, bytes, bytes, tuple[int, int, int]]

# int64 tensors of at most so many elements are searched for values that int32 does not hold, at a
# few microseconds: where there are none, as in document numbers, comparisons take half the time.
_LOOKED_THROUGH: Final = 1 << 16

# Gradients of more elements are summed in the tensor itself, not in float64 copies, where one of
# their dimensions is that of the batches, the heads or the keys.
_COPIED: Final = 1 << 17


def native_score(score_mod: ScoreMod, sizes: _Sizes) -> NativeScore:
    """Return the program for a call.

    The graph is kept by the program's text, the steps by text, sizes and strides; a call with
    other captured tensors of the same form only writes their addresses.

    Args:
        score_mod: the traced function.
        sizes: B, Hq, Sq, Sk.

    Raises:
        IndexError: a captured tensor that is indexed has no element.
    """
    # Before anything reads them: to torch memory that was freed is as good as any.
    places = addresses(score_mod.captured, "score_mod")
    encoded = encoded_score(score_mod.text, captured_shapes(score_mod), sizes)
    return encoded.at(places)


class ScoreGradients:
    """The program of a call's backward, and the sums of captured tensors' gradients.

    Args:
        score_mod: the traced function.
        wanted: of each captured tensor, whether its gradient is wanted; empty: of none.
        sizes: B, Hq, Sq, Sk, none of them 0.

    Raises:
        IndexError: a captured tensor that is indexed has no element.
    """

    def __init__(self, score_mod: ScoreMod, wanted: tuple[bool, ...], sizes: _Sizes) -> None:
        tensors = score_mod.captured
        places_read = addresses(tensors, "score_mod")
        shapes = tuple(_shape(tensor) for tensor in tensors)
        plan = _planned(score_mod.text, shapes, wanted, sizes)
        self.score = plan.encoded.score.at(places_read)
        # Zeros: kernels add to shared ones.
        self._sums = {
            number: torch.zeros(tensors[number].shape, dtype=torch.float32)
            for number, _ in plan.summed
        }
        places = {number: place for place, (number, _) in enumerate(plan.summed)}
        sites = array("q")
        for tensor, *rest in plan.encoded.sites:
            sites.extend((places[tensor], *rest))
        sums = array("q")
        for number, shared in plan.summed:
            total = self._sums[number]
            sums.extend((address(total, "gradient"), total.numel(), shared))
        self.gradient: NativeGradient = (
            plan.encoded.slope,
            sites.tobytes(),
            sums.tobytes(),
            plan.apart,
        )
        self._wanted = [
            tensor if flag else None
            for tensor, flag in zip(tensors, wanted or (False,) * len(tensors), strict=True)
        ]

    def captured(self) -> tuple[Tensor | None, ...]:
        """Return the gradients, after a kernel has run."""
        return tuple(
            None if tensor is None else self._gradient(number, tensor)
            for number, tensor in enumerate(self._wanted)
        )

    def _gradient(self, number: int, tensor: Tensor) -> Tensor:
        if number in self._sums:
            return self._sums[number].to(tensor.dtype)
        return torch.zeros(tensor.shape, dtype=tensor.dtype)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What of a backward's program does not change with the captured values.

    Attributes:
        encoded: the program.
        summed: captured tensors with sites, and whether their sums are shared.
        apart: whether different batches, heads and keys never index the same element of a shared
            tensor.
    """

    encoded: EncodedGradient
    summed: tuple[tuple[int, bool], ...]
    apart: tuple[int, int, int]


def captured_shapes(score_mod: ScoreMod) -> tuple[CapturedShape, ...]:
    """Return what binding needs to know of the captured tensors."""
    return tuple(_shape(tensor) for tensor in score_mod.captured)


@lru_cache(maxsize=1024)
def encoded_score(text: str, captured: tuple[CapturedShape, ...], sizes: _Sizes) -> EncodedScore:
    """Return the program for captured tensors of these forms, without their addresses."""
    return encode(bind(lower(text, _traits(captured)), captured, sizes))


@lru_cache(maxsize=1024)
def _planned(
    text: str, captured: tuple[CapturedShape, ...], wanted: tuple[bool, ...], sizes: _Sizes
) -> _Plan:
    differentiated = differentiate(text, _traits(captured), wanted)
    encoded = encode_gradient(bind_gradient(differentiated, captured, sizes))
    summed = []
    apart = (True, True, True)
    for tensor in sorted({site[0] for site in encoded.sites}):
        own = _apart(differentiated, tensor, captured[tensor].sizes, sizes)
        shared = math.prod(captured[tensor].sizes) > _COPIED and any(own)
        summed.append((tensor, shared))
        if shared:
            apart = (apart[0] and own[0], apart[1] and own[1], apart[2] and own[2])
    return _Plan(encoded, tuple(summed), (int(apart[0]), int(apart[1]), int(apart[2])))


def _apart(
    differentiated: DifferentiatedScore, tensor: int, shape: tuple[int, ...], sizes: _Sizes
) -> tuple[bool, bool, bool]:
    """Return whether pairs of other batches, heads or keys always read other elements: where all
    sites index one dimension by exactly that."""
    nodes = differentiated.graph.nodes
    gathers = [nodes[site.gather] for site in differentiated.sites]
    gathers = [gather for gather in gathers if gather.data == tensor]

    def is_input(number: int, name: str) -> bool:
        return nodes[number].op == "input" and nodes[number].data == name

    batch, head, key = (
        any(
            size >= count and all(is_input(gather.args[dimension], name) for gather in gathers)
            for dimension, size in enumerate(shape)
        )
        for name, count in (("b", sizes[0]), ("h", sizes[1]), ("k", sizes[3]))
    )
    return batch, head, key


def _traits(captured: tuple[CapturedShape, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((_dtype(shape), len(shape.sizes)) for shape in captured)


def _dtype(shape: CapturedShape) -> str:
    return "int64" if shape.dtype == "narrow" else shape.dtype


def _shape(tensor: Tensor) -> CapturedShape:
    dtype = str(tensor.dtype)[6:]
    if dtype == "int64" and 0 < tensor.numel() <= _LOOKED_THROUGH:
        low, high = tensor.aminmax()
        if fits_int32((int(low), int(high))):
            dtype = "narrow"
    return CapturedShape(dtype, tuple(tensor.shape), tensor.stride())

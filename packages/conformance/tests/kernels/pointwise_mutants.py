"""Kernels of ``pointwise/1`` with one planted fault each, and the law that is meant for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.pointwise.contract import PointwiseCall

from .sound_kernels import SoundKernel, SoundPointwise

__all__ = ["MUTANTS"]

_Results = tuple[list[Tensor], ...]


class NumbersRunOut(SoundPointwise):
    """Has room for the numbers of sixteen groups."""

    def compute(self, call: PointwiseCall) -> _Results:
        numbers = list(call.inputs[2])
        kept = numbers[:16] + numbers[15:16] * (len(numbers) - 16)
        return super().compute(  # type: ignore[no-any-return]
            replace(call, inputs=(*call.inputs[:2], kept))
        )


class ReadsWhatItWrote(SoundPointwise):
    """Computes the second result from what the first one left."""

    def compute(self, call: PointwiseCall) -> _Results:
        if len(call.out) < 2:
            return super().compute(call)  # type: ignore[no-any-return]
        apart = replace(call, out=(), request=replace(call.request, out=()))
        for place, written in enumerate(call.out):
            for into, result in zip(written, super().compute(apart)[place], strict=True):
                into.copy_(result)
        return tuple(list(written) for written in call.out)


class ReturnsAnotherList(SoundPointwise):
    """Returns copies of what it wrote."""

    def compute(self, call: PointwiseCall) -> _Results:
        found: _Results = super().compute(call)
        return tuple([item.clone() for item in items] for items in found)


class NanIsNothing(SoundPointwise):
    """Was compiled for finite numbers."""

    def compute(self, call: PointwiseCall) -> _Results:
        found: _Results = super().compute(call)
        for item in (item for items in found for item in items if item.is_floating_point()):
            item[item.isnan()] = 0
        return found


class WholeVectors(SoundPointwise):
    """Writes as many elements as a vector has."""

    def compute(self, call: PointwiseCall) -> _Results:
        found: _Results = super().compute(call)
        for item in (item for items in call.out for item in items if item.is_contiguous()):
            end = item.storage_offset() + item.numel()
            if item.untyped_storage().nbytes() // item.element_size() > end:
                item.as_strided((1,), (1,), end).fill_(0)
        return found


class ReadsSideBySide(SoundPointwise):
    """Reads elements as if each followed the one before."""

    def compute(self, call: PointwiseCall) -> _Results:
        first = [
            item.as_strided(item.shape, torch.empty(item.shape, device="meta").stride())
            for item in call.inputs[0]
            if isinstance(item, Tensor)
        ]
        return super().compute(  # type: ignore[no-any-return]
            replace(call, inputs=(first, *call.inputs[1:]))
        )


MUTANTS: Final[tuple[tuple[type[SoundKernel], str], ...]] = (
    (NumbersRunOut, "truth.kernels-match-reference"),
    (ReadsWhatItWrote, "truth.pointwise-written-lists"),
    (ReturnsAnotherList, "truth.pointwise-written-lists"),
    (NanIsNothing, "numerics.kernels-not-finite"),
    (WholeVectors, "truth.kernels-memory-left-alone"),
    (ReadsSideBySide, "truth.kernels-any-memory"),
)

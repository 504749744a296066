"""Kernels of ``topk/1`` with one planted fault each, and the law that is meant for it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, ClassVar, Final

import torch

from torchyard import Platform, ReasonCode, Verdict
from torchyard_kernels.topk.contract import Order, TopKCall, TopKResult

from .sound_kernels import SoundKernel, SoundTopK

__all__ = ["MUTANTS"]


def _last_of_equals(kernel: SoundTopK, call: TopKCall) -> TopKResult:
    """Select with equal elements by their highest index."""
    flipped = replace(call, x=call.x.flip(-1), order=Order.SORTED)
    found: TopKResult = SoundTopK.compute(kernel, flipped)
    return TopKResult(found.values, call.x.shape[-1] - 1 - found.indices)


class SmallestOfBytes(SoundTopK):
    """Takes the greatest of unsigned bytes where the smallest are asked for."""

    def compute(self, call: TopKCall) -> TopKResult:
        largest = call.largest or call.x.dtype == torch.uint8
        return super().compute(replace(call, largest=largest))  # type: ignore[no-any-return]


class LastOfEquals(SoundTopK):
    """Of equal numbers takes the one with the highest index first."""

    def compute(self, call: TopKCall) -> TopKResult:
        plain = call.mask is None and call.offsets is None and call.order is Order.SORTED
        if plain and call.x.is_floating_point() and call.x.isfinite().all():
            return _last_of_equals(self, call)
        return super().compute(call)  # type: ignore[no-any-return]


class ZerosLoseTheirSign(SoundTopK):
    """Adds 0 to what it returns."""

    def compute(self, call: TopKCall) -> TopKResult:
        found: TopKResult = super().compute(call)
        return TopKResult(found.values + 0, found.indices)


class NanIsLeast(SoundTopK):
    """Compares with <, which is false of NaN."""

    def compute(self, call: TopKCall) -> TopKResult:
        if not call.x.is_floating_point() or not call.x.isnan().any():
            return super().compute(call)  # type: ignore[no-any-return]
        least = torch.where(call.x.isnan(), -torch.inf, call.x)
        found: TopKResult = super().compute(replace(call, x=least))
        return TopKResult(call.x.gather(-1, found.indices), found.indices)


class ReadsSideBySide(SoundTopK):
    """Reads elements as if each followed the one before."""

    def compute(self, call: TopKCall) -> TopKResult:
        strides = torch.empty(call.x.shape, device="meta").stride()
        return super().compute(  # type: ignore[no-any-return]
            replace(call, x=call.x.as_strided(call.x.shape, strides))
        )


class NarrowIndices(SoundTopK):
    """Returns the indices that it computed with."""

    def compute(self, call: TopKCall) -> TopKResult:
        found: TopKResult = super().compute(call)
        return TopKResult(found.values, found.indices.to(torch.int32))


class WritesBeside(SoundTopK):
    """Puts a sentinel behind the last element."""

    def compute(self, call: TopKCall) -> TopKResult:
        found: TopKResult = super().compute(call)
        x = call.x
        end = x.storage_offset() + x.numel()
        if x.is_contiguous() and x.untyped_storage().nbytes() // x.element_size() > end:
            x.as_strided((1,), (1,), end).fill_(0)
        return found


class AcceptsNothing(SoundTopK):
    """Compares a length with a limit that every length is above."""

    def supports(self, request: Any, platform: Platform) -> Verdict:
        return Verdict.no(ReasonCode.SHAPE, "expected rows of at most 0")


class RefusesByRaising(SoundTopK):
    """Looks its dtypes up in a table that lacks some."""

    def supports(self, request: Any, platform: Platform) -> Verdict:
        verdict = super().supports(request, platform)
        if not verdict.supported:
            raise KeyError(request.dtype)
        return verdict


class FreshMemory(SoundTopK):
    """Adds up counters that it did not clear."""

    def compute(self, call: TopKCall) -> TopKResult:
        found: TopKResult = super().compute(call)
        counters = torch.empty(64)
        return TopKResult(found.values, found.indices + int(counters.isnan().all()))


class DividesByThreads(SoundTopK):
    """Merges the parts of five threads from the last to the first."""

    def compute(self, call: TopKCall) -> TopKResult:
        if torch.get_num_threads() == 5:
            return _last_of_equals(self, call)
        return super().compute(call)  # type: ignore[no-any-return]


class SeesItsBatch(SoundTopK):
    """Has a way of its own for a single row, which takes equal elements from the end."""

    def compute(self, call: TopKCall) -> TopKResult:
        if call.x.shape[0] == 1 and call.offsets is None:
            return _last_of_equals(self, call)
        return super().compute(call)  # type: ignore[no-any-return]


class KeepsEachCall(SoundTopK):
    """Stores every call by its tensors."""

    calls: ClassVar[list[TopKCall]] = []

    def compute(self, call: TopKCall) -> TopKResult:
        self.calls.append(call)
        return super().compute(call)  # type: ignore[no-any-return]


class WaitsForTheSameCall(SoundTopK):
    """Takes a call that it has just seen for a busy device."""

    last: ClassVar[TopKCall | None] = None

    def compute(self, call: TopKCall) -> TopKResult:
        if call is WaitsForTheSameCall.last:
            time.sleep(0.5)
        WaitsForTheSameCall.last = call
        return super().compute(call)  # type: ignore[no-any-return]


MUTANTS: Final[tuple[tuple[type[SoundKernel], str], ...]] = (
    (AcceptsNothing, "truth.kernels-accept-something"),
    (RefusesByRaising, "truth.kernels-refuse-with-a-reason"),
    (SmallestOfBytes, "truth.kernels-match-reference"),
    (ReadsSideBySide, "truth.kernels-any-memory"),
    (NarrowIndices, "truth.kernels-stated-form"),
    (WritesBeside, "truth.kernels-memory-left-alone"),
    (KeepsEachCall, "truth.kernels-memory-does-not-grow"),
    (WaitsForTheSameCall, "truth.kernels-cost-near-reference"),
    (LastOfEquals, "numerics.topk-equal-elements"),
    (ZerosLoseTheirSign, "numerics.topk-equal-elements"),
    (NanIsLeast, "numerics.kernels-not-finite"),
    (FreshMemory, "numerics.kernels-fresh-memory"),
    (DividesByThreads, "numerics.kernels-deterministic"),
    (SeesItsBatch, "numerics.kernels-batch-invariant"),
)

"""Kernels of ``linear/1`` with one planted fault each, and the law that is meant for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import LinearCall, Packed

from .sound_kernels import SoundKernel, SoundLinear

__all__ = ["MUTANTS"]


class NarrowSums(SoundLinear):
    """Adds up tiles of a long row in the dtype of the inputs."""

    def compute(self, call: LinearCall) -> Tensor:
        depth = call.x.shape[-1]
        if depth < 512 or isinstance(call.weight, Packed):
            return super().compute(call)  # type: ignore[no-any-return]
        total: Tensor = super().compute(replace(call, x=call.x[..., :1], weight=call.weight[:, :1]))
        for at in range(1, depth):
            part = slice(at, at + 1)
            total = total + super().compute(LinearCall(call.x[..., part], call.weight[:, part]))
        return total


class FunctionBeforeBias(SoundLinear):
    """Runs the epilogue on a tile that lacks its bias."""

    def compute(self, call: LinearCall) -> Tensor:
        out: Tensor = super().compute(call)
        if call.epilogue is None or call.gated or call.bias is None or call.epilogue.captured:
            return out
        return super().compute(replace(call, bias=None)) + call.bias  # type: ignore[no-any-return]


class ReadsRowsSideBySide(SoundLinear):
    """Takes a weight's rows to follow one another."""

    def compute(self, call: LinearCall) -> Tensor:
        weight = call.weight
        if isinstance(weight, Tensor) and weight.numel():
            weight = weight.as_strided(
                weight.shape, torch.empty(weight.shape, device="meta").stride()
            )
        return super().compute(replace(call, weight=weight))  # type: ignore[no-any-return]


class WholePanelsOnly(SoundLinear):
    """Leaves out the outputs of a panel that is not full."""

    def compute(self, call: LinearCall) -> Tensor:
        out: Tensor = super().compute(call)
        if isinstance(call.weight, Packed) and call.x.shape[-1] > 100:
            out[..., out.shape[-1] // 32 * 32 :] = 0
        return out


class BadRowSpreads(SoundLinear):
    """Gives the rows of other requests a weight of 0, and multiplies."""

    def compute(self, call: LinearCall) -> Tensor:
        out: Tensor = super().compute(call)
        return out + (call.x.sum() * 0).to(out.dtype)


class SumsByThreads(SoundLinear):
    """Rounds by how many threads there are."""

    def compute(self, call: LinearCall) -> Tensor:
        out: Tensor = super().compute(call)
        odd = torch.get_num_threads() % 2 == 0
        return torch.nextafter(out, out + 1) if odd and out.dtype == torch.float32 else out


class TilesByRows(SoundLinear):
    """Has a way of its own for a single row, which rounds otherwise."""

    def compute(self, call: LinearCall) -> Tensor:
        out: Tensor = super().compute(call)
        alone = out.shape[0] == 1 and out.dtype == torch.float32
        return torch.nextafter(out, out + 1) if alone else out


MUTANTS: Final[tuple[tuple[type[SoundKernel], str], ...]] = (
    (NarrowSums, "truth.kernels-match-reference"),
    (FunctionBeforeBias, "truth.kernels-match-reference"),
    (ReadsRowsSideBySide, "truth.kernels-any-memory"),
    (WholePanelsOnly, "truth.linear-packed-weights"),
    (BadRowSpreads, "numerics.kernels-not-finite"),
    (SumsByThreads, "numerics.kernels-deterministic"),
    (TilesByRows, "numerics.kernels-batch-invariant"),
)

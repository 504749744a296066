"""How far a quantized model is from its float form, over many calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard_export._report.quantization import Accuracy
from torchyard_export._tree import flatten

__all__ = ["Comparison"]


@dataclass(slots=True)
class _Sums:
    signal: float = 0.0
    noise: float = 0.0
    most: float = 0.0
    rows: int = 0
    same: int = 0


class Comparison:
    """Sums over calls, since outputs of all of them would fill the memory."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}
        self.calls = 0

    def add(self, wanted: Any, found: Any) -> None:
        """Compare the outputs of one call: the float model's, and the quantized one's."""
        self.calls += 1
        for (path, exact), (_, rounded) in zip(flatten(wanted), flatten(found), strict=True):
            if isinstance(exact, Tensor) and exact.is_floating_point() and exact.numel():
                _add(self._sums.setdefault(path, _Sums()), exact.double(), rounded.double())

    def accuracy(self) -> tuple[Accuracy, ...]:
        """Return what was found of each floating output."""
        return tuple(
            Accuracy(path, _decibels(sums), sums.most, sums.same / sums.rows if sums.rows else None)
            for path, sums in self._sums.items()
        )


def _add(sums: _Sums, exact: Tensor, rounded: Tensor) -> None:
    # A mask of minus infinity is the same in both; elsewhere a difference counts as it is.
    difference = torch.where(exact == rounded, 0.0, rounded - exact)
    sums.signal += float(exact[torch.isfinite(exact)].square().sum())
    sums.noise += float(difference.square().sum())
    sums.most = max(sums.most, float(difference.abs().max()))
    if exact.dim() > 1 and exact.shape[-1] > 1:
        same = exact.argmax(-1) == rounded.argmax(-1)
        sums.rows += same.numel()
        sums.same += int(same.sum())


def _decibels(sums: _Sums) -> float | None:
    if not sums.noise:
        return None
    return 10 * math.log10(sums.signal / sums.noise) if sums.signal else -math.inf

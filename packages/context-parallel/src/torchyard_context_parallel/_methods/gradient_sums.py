"""Gradients of what a score_mod captures: sums over the steps, then over the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from torchyard_context_parallel._methods.heads import wide


class CapturedSums:
    """Adds up gradients by the tensor that they are of.

    Args:
        tensors: those that gradients are wanted of.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)
        self._sums = [torch.zeros_like(tensor, dtype=wide(tensor)) for tensor in tensors]

    def add(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Add gradients of some of the tensors."""
        for tensor, gradient in pairs:
            place = next(n for n, known in enumerate(self._tensors) if known is tensor)
            self._sums[place] += gradient

    def over(self, groups: Sequence[dist.ProcessGroup]) -> list[Tensor]:
        """Return the sums over the ranks of groups, in the tensors' dtypes; alike on every rank."""
        for total in self._sums:
            for group in groups:
                dist.all_reduce(total, group=group)
        return [
            total.to(tensor.dtype) for total, tensor in zip(self._sums, self._tensors, strict=True)
        ]

"""Kernels that compute what they should, and keep memory or take time that they should not."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients, AttentionResult

from .toy_attention import Toy

__all__ = ["KeepsItsResults", "KeepsItsScratch", "Waits"]


class KeepsItsScratch(Toy):
    """Never gives eight megabytes of scratch memory back, and never touches them."""

    scratch: ClassVar[list[Tensor]] = []

    def forward(self, call: AttentionCall) -> AttentionResult:
        self.scratch.append(torch.empty(2**21))
        return super().forward(call)


class KeepsItsResults(Toy):
    """Keeps what it returned, a few bytes each."""

    results: ClassVar[list[AttentionGradients]] = []

    def backward(self, call: AttentionCall, *given: Any) -> AttentionGradients:
        self.results.append(super().backward(call, *given))
        return self.results[-1]


class Waits(Toy):
    """Waits for the device by the clock."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        time.sleep(0.5)
        return super().forward(call)

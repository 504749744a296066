"""Kernels whose verdict has a planted fault; see kernel_mutants."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from torchyard import Platform, ReasonCode, Verdict
from torchyard_attention.contract import (
    AttentionCall,
    AttentionRequest,
    AttentionResult,
)

from .toy_attention import Toy


class AcceptsScoreMods(Toy):
    """Says yes to score_mods, and leaves them out."""

    def forward(self, call: AttentionCall) -> AttentionResult:
        return super().forward(replace(call, score_mod=None))


class AcceptsNothing(Toy):
    """Compares a length with a limit that every length is above."""

    def supports(self, request: AttentionRequest, platform: Platform) -> Verdict:
        return Verdict.no(ReasonCode.SHAPE, f"at most -1 keys, got {request.kv_length}")


class RefusesByRaising(Toy):
    """Looks dtypes up in a table without asking whether they are there."""

    def supports(self, request: AttentionRequest, platform: Platform) -> Verdict:
        return {name: Verdict.yes() for name in self.dtypes}[request.dtype]


class RemembersWhatItWasAsked(Toy):
    """Refuses the second time."""

    def __init__(self) -> None:
        self._asked: set[AttentionRequest] = set()

    def supports(self, request: AttentionRequest, platform: Platform) -> Verdict:
        if request in self._asked:
            return Verdict.no(ReasonCode.OTHER, "enough")
        self._asked.add(request)
        return super().supports(request, platform)


class DrawsANumber(Toy):
    """Tries itself on a random tensor before it answers."""

    def supports(self, request: AttentionRequest, platform: Platform) -> Verdict:
        torch.randn(1)
        return super().supports(request, platform)


class CompilesWhenAsked(Toy):
    """Does in supports() what belongs to load()."""

    def supports(self, request: AttentionRequest, platform: Platform) -> Verdict:
        time.sleep(0.002)
        return super().supports(request, platform)


class LooksAtATensor(Toy):
    """Measures a tensor's alignment to decide, and fake tensors have no address."""

    def supports(self, request: AttentionRequest, platform: Platform) -> Verdict:
        from torch._subclasses.fake_tensor import FakeTensor

        if isinstance(torch.empty(1), FakeTensor):
            return Verdict.no(ReasonCode.LAYOUT, "not aligned")
        return super().supports(request, platform)

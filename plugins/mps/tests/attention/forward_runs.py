"""Launches of attention, run in Metal on this machine."""

from __future__ import annotations

from typing import Any, Final

import torch

from plugins.mps.tests.emulated import filled
from torchyard_attention.contract import AttentionCall, AttentionResult, ScoreMod
from torchyard_mps.attention import forward_launches

__all__ = ["forward", "same"]

_OUTPUTS: Final = ("out", "lse", "max_scores")


def forward(
    call: AttentionCall, mask_mod: ScoreMod | None = None, part: int = 256, **options: Any
) -> tuple[AttentionResult, list[str]]:
    """Return what the kernels compute of a call, and what is wrong with them."""
    launches, result = forward_launches(call, mask_mod=mask_mod, part=part)
    findings = [finding for launch in launches for finding in filled(launch, **options)]
    return result, findings


def same(one: AttentionResult, other: AttentionResult) -> bool:
    """Return whether two results have the same bits."""
    return all(
        first is second or (first is not None and torch.equal(first, second))
        for first, second in ((getattr(item, name) for item in (one, other)) for name in _OUTPUTS)
    )

"""Launches of attention, run in Metal on this machine."""

from __future__ import annotations

from typing import Any

from torchyard_attention.contract import AttentionCall, AttentionResult, ScoreMod
from torchyard_conformance import metal
from torchyard_mps.attention import forward_launch

__all__ = ["forward"]


def forward(
    call: AttentionCall, mask_mod: ScoreMod | None = None, **options: Any
) -> tuple[AttentionResult, list[str]]:
    """Return what the kernel computes of a call, and what is wrong with it."""
    launch, result = forward_launch(call, mask_mod=mask_mod)
    if 0 in launch.groups:
        return result, []
    buffers: list[Any] = list(launch.buffers)
    for index in launch.outputs:
        buffers[index] = metal.Empty(tuple(buffers[index].shape), buffers[index].dtype)
    outcome = metal.run(
        launch.source, launch.kernel, launch.groups, launch.threads, buffers, **options
    )
    results = {"out": result.out, "lse": result.lse, "max_scores": result.max_scores}
    for name, filled in results.items():
        if filled is not None and name in outcome.outputs:
            filled.copy_(outcome.outputs[name])
    return result, [str(finding) for finding in outcome.findings]

"""Gradients of attention in Metal on this machine, beside the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from plugins.mps.tests.emulated import emulated
from torchyard_attention.contract import AttentionCall, AttentionGradients, ScoreMod
from torchyard_attention.reference import reference_forward
from torchyard_attention.tolerance import GradientRuler
from torchyard_mps.attention import backward

__all__ = ["Given", "given_for", "gradients", "worst"]

# What a backward gets beside the call: out, lse, grad_out, grad_lse.
Given = tuple[Tensor, Tensor, Tensor, Tensor | None]


def given_for(call: AttentionCall, *, grad_lse: bool = True) -> Given:
    """Return outputs of the reference, and random gradients of them."""
    result = reference_forward(call)
    assert result.lse is not None
    generator = torch.Generator().manual_seed(9)
    grad_out = torch.randn(result.out.shape, generator=generator).to(result.out.dtype)
    slopes = torch.randn(result.lse.shape, generator=generator) if grad_lse else None
    return result.out, result.lse, grad_out, slopes


def gradients(
    call: AttentionCall, given: Given, mask_mod: ScoreMod | None = None
) -> AttentionGradients:
    """Return what the kernels compute of a call; a finding is an error."""
    with emulated():
        return backward(call, *given, mask_mod=mask_mod)


def worst(call: AttentionCall, given: Given, got: AttentionGradients) -> float:
    """Return the greatest error over what it may be: up to 1 passes."""
    errors = GradientRuler(call, *given[2:]).compare(got)
    return max((error.ratio for error in errors), default=0.0)

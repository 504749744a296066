"""Gamma variables, and simplices of them, with their gradients."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchyard_mps.distributions import _draws as draws

__all__ = ["gamma", "simplex"]

# Below it a sum of gamma variables has lost digits, and their logarithms have not.
_LEAST_SUM: Final = 1e-30


def gamma(concentration: Tensor, key: Tensor) -> Tensor:
    """Draw gamma variables of scale 1, differentiable in the concentration."""
    apply: Any = _Gamma.apply
    drawn: Tensor = apply(concentration, key)
    return drawn


def simplex(concentration: Tensor, key: Tensor) -> Tensor:
    """Draw Dirichlet variables over the last dimension, differentiable in the concentration.

    They are gamma variables over their sum. The gradient is that of the gamma variables at their
    quantiles: of an expectation the same as torch's, which keeps other quantiles, and of one draw
    not.
    """
    apply: Any = _Simplex.apply
    drawn: Tensor = apply(concentration, key)
    return drawn


class _Gamma(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, concentration: Tensor, key: Tensor) -> Tensor:
        value, log_value = draws.gamma(concentration, key)
        ctx.save_for_backward(concentration, value, log_value)
        return value.to(concentration.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        concentration, value, log_value = ctx.saved_tensors
        slopes = draws.gamma_slopes(concentration, value, log_value)
        return (gradients[0] * value * slopes).to(concentration.dtype), None


class _Simplex(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, concentration: Tensor, key: Tensor) -> Tensor:
        value, log_value = draws.gamma(concentration, key)
        total = value.sum(-1, keepdim=True)
        parts = torch.where(total > _LEAST_SUM, value / total, log_value.softmax(-1))
        ctx.save_for_backward(concentration, value, log_value, parts)
        return parts.to(concentration.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        concentration, value, log_value, parts = ctx.saved_tensors
        slopes = draws.gamma_slopes(concentration, value, log_value)
        gradient = gradients[0].to(parts.dtype)
        centred = gradient - (gradient * parts).sum(-1, keepdim=True)
        return (parts * centred * slopes).to(concentration.dtype), None

"""A call's outputs and gradients, by the implementation that the registry chooses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import decision_cache
from torchyard_attention._ops._arguments import Arguments
from torchyard_attention._ops._fast_path import enable
from torchyard_attention._ops._layout import in_order
from torchyard_attention._ops._request import request_of
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionGradients,
    AttentionResult,
    Forward,
)

__all__ = ["gradients", "outputs"]


def outputs(
    arguments: Arguments, lse: bool, max_scores: bool, use: str | None, *, grad: bool = False
) -> AttentionResult:
    """Compute the outputs.

    Args:
        arguments: the call.
        lse, max_scores: whether they are outputs; lse is one where gradients will be asked for.
        use: the implementation that is demanded, or None.
        grad: whether gradients will be asked for.
    """
    call = arguments.call(lse or grad, max_scores)
    request = request_of(
        call,
        causal=arguments.causal,
        grad=grad,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    cache = decision_cache()
    chosen: Forward = registry().resolve(FORWARD, request, use=use)
    if use is None and not call.options and call.dropout is None:
        enable(cache, chosen, request, call)
    result = chosen(call)
    out = in_order(result.out, call.query)
    return result if out is result.out else AttentionResult(out, result.lse, result.max_scores)


def gradients(
    arguments: Arguments,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    captured_grad: Sequence[bool],
) -> AttentionGradients:
    """Compute the gradients of query, key, value and of the captured tensors that are marked."""
    call = arguments.call(lse=True, max_scores=False, captured_grad=tuple(captured_grad))
    request = request_of(
        call,
        causal=arguments.causal,
        grad=True,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    found: AttentionGradients = registry().resolve(BACKWARD, request)(
        call, out, lse, grad_out, grad_lse
    )
    return found

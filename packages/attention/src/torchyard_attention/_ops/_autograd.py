"""How a call is differentiated, whether autograd recorded the op or the call itself.

Torch's own derivative of an op flattens and rebuilds all of its arguments in Python, on one thread,
which after a long call takes longer still, since they are in no cache. So a call in which only
autograd and a kernel take part is recorded by a function of its own, and its gradients bypass the
dispatcher.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchyard import is_batch_of_gradients
from torchyard.dispatch import is_plain_call
from torchyard_attention._ops._arguments import dropout_arguments, flattened
from torchyard_attention._ops._computation import gradients, outputs
from torchyard_attention._ops._operators import OPERATORS
from torchyard_attention._ops._transforms._composed import composed_gradients
from torchyard_attention._ops._transforms._plan import Plan, captured_of, tensors
from torchyard_attention.contract import AttentionCall, AttentionResult

__all__ = ["InputGradients", "input_gradients", "recorded"]


class InputGradients(NamedTuple):
    """Gradients of a call's inputs.

    Attributes:
        query, key, value: in their inputs' shapes and dtypes; None where no output has a gradient.
        captured: for each tensor that the score_mod captures; None where it is not wanted.
    """

    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    captured: list[Tensor | None]


def recorded(call: AttentionCall, use: str) -> AttentionResult:
    """Compute the outputs of a plain call, see ``is_plain_call``, and let autograd record it."""
    out, lse, greatest = _Attention.apply(  # type: ignore[no-untyped-call]
        call, use, *tensors(call)
    )
    return AttentionResult(out, lse, greatest)


def input_gradients(
    call: AttentionCall,
    grad_out: Tensor | None,
    grad_lse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    wanted: tuple[bool, ...],
) -> InputGradients:
    """Compute the gradients of a call's inputs from those of its outputs.

    Args:
        call: the call.
        grad_out, grad_lse: None for zeros.
        out, lse: its outputs.
        wanted: which captured tensors of the score_mod get a gradient.
    """
    if grad_out is None and grad_lse is None:
        return InputGradients(None, None, None, [None] * len(wanted))
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    call = replace(call, lse=True, max_scores=False, grad=True, captured_grad=wanted)
    slopes = (grad_out,) if grad_lse is None else (grad_out, grad_lse)
    masks = () if call.mask is None else call.mask.tensors
    given = (*slopes, out, lse, call.query, call.key, call.value, *captured_of(call), *masks)
    if not torch.is_grad_enabled() and is_plain_call(given):
        found = gradients(call, out, lse, grad_out, grad_lse)
        captured = list(found.captured) or [None] * len(wanted)
        return InputGradients(found.query, found.key, found.value, captured)
    if any(is_batch_of_gradients(slope) for slope in slopes):
        of_query, of_key, of_value, *marked = composed_gradients(call, grad_out, grad_lse)
    else:
        of_query, of_key, of_value, marked = OPERATORS["backward"](
            grad_out,
            grad_lse,
            out,
            lse,
            *flattened(call),
            list(wanted),
            *dropout_arguments(call),
        )
    rest = iter(marked)
    captured = [next(rest) if flag else None for flag in wanted]
    return InputGradients(of_query, of_key, of_value, captured)


class _Attention(torch.autograd.Function):
    """A plain call as one node: (call, use, tensors) -> out, lse, max_scores or None."""

    @staticmethod
    def forward(
        ctx: Any, call: AttentionCall, use: str, *_: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        result = outputs(call, use)
        assert result.lse is not None, "a call that is differentiated has one"
        ctx.plan = Plan.of(outputs, call)
        ctx.save_for_backward(result.out, result.lse, *tensors(call))
        ctx.set_materialize_grads(False)
        if result.max_scores is not None:
            ctx.mark_non_differentiable(result.max_scores)
        return result.out, result.lse, result.max_scores

    @staticmethod
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, _: Any
    ) -> tuple[Any, ...]:
        out, lse, *given = ctx.saved_tensors
        wanted = tuple(ctx.needs_input_grad[5 : 5 + ctx.plan.counts[0]])
        found = input_gradients(ctx.plan.call(given), grad_out, grad_lse, out, lse, wanted)
        return None, None, *found[:3], *found.captured, *(None,) * ctx.plan.others

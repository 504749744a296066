"""How a call is differentiated, whether autograd recorded the op or the call itself.

Torch's own derivative of an op flattens and rebuilds all of its arguments in Python, which after a
long call lies in no cache any more, and on one thread whatever the number of them. So a call in
which only autograd and a kernel take part is recorded by a function of its own, and its gradients
go past the dispatcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchyard import is_batch_of_gradients
from torchyard.dispatch import is_plain_call
from torchyard_attention._ops._arguments import Arguments
from torchyard_attention._ops._computation import gradients, outputs
from torchyard_attention._ops._operators import OPERATORS
from torchyard_attention._ops._transforms._composed import composed_gradients
from torchyard_attention._ops._transforms._plan import Plan, tensors
from torchyard_attention.contract import AttentionResult

__all__ = ["InputGradients", "input_gradients", "recorded"]


class InputGradients(NamedTuple):
    """Gradients of a call's inputs.

    Attributes:
        query, key, value: in their inputs' shapes and dtypes; None where no output has a gradient.
        captured: of each tensor that the score_mod captures; None where it is not wanted.
    """

    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    captured: list[Tensor | None]


def recorded(arguments: Arguments, lse: bool, max_scores: bool, use: str | None) -> AttentionResult:
    """Compute the outputs of a plain call, see ``is_plain_call``, and let autograd record it."""
    out, found, greatest = _Attention.apply(  # type: ignore[no-untyped-call]
        arguments,
        lse,
        max_scores,
        use,
        *tensors(arguments),
    )
    return AttentionResult(out, found if lse else None, greatest)


def input_gradients(
    arguments: Arguments,
    grad_out: Tensor | None,
    grad_lse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    wanted: Sequence[bool],
) -> InputGradients:
    """Compute the gradients of a call's inputs from those of its outputs.

    Args:
        arguments: the call.
        grad_out, grad_lse: None for zeros.
        out, lse: its outputs.
        wanted: which captured tensors of the score_mod get a gradient.
    """
    if grad_out is None and grad_lse is None:
        return InputGradients(None, None, None, [None] * len(wanted))
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    slopes = (grad_out,) if grad_lse is None else (grad_out, grad_lse)
    given = (*slopes, out, lse, *arguments[:3], *arguments.score_captured)
    if not torch.is_grad_enabled() and is_plain_call((*given, *arguments.mask)):
        found = gradients(arguments, grad_out, grad_lse, out, lse, wanted)
        captured = list(found.captured) or [None] * len(wanted)
        return InputGradients(found.query, found.key, found.value, captured)
    if any(is_batch_of_gradients(slope) for slope in slopes):
        of_query, of_key, of_value, *marked = composed_gradients(
            arguments, grad_out, grad_lse, wanted
        )
    else:
        of_query, of_key, of_value, marked = OPERATORS["backward"](
            grad_out,
            grad_lse,
            out,
            lse,
            *arguments.given(),
            list(wanted),
            *arguments.dropout(),
        )
    rest = iter(marked)
    captured = [next(rest) if flag else None for flag in wanted]
    return InputGradients(of_query, of_key, of_value, captured)


class _Attention(torch.autograd.Function):
    """A plain call as one node: (how, tensors) -> out, lse, max_scores or None."""

    @staticmethod
    def forward(
        ctx: Any,
        arguments: Arguments,
        lse: bool,
        max_scores: bool,
        use: str | None,
        *_: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        result = outputs(arguments, lse, max_scores, use, grad=True)
        assert result.lse is not None, "a call that is differentiated has one"
        ctx.plan = Plan.of(outputs, arguments, ())
        ctx.save_for_backward(result.out, result.lse, *tensors(arguments))
        ctx.set_materialize_grads(False)
        if result.max_scores is not None:
            ctx.mark_non_differentiable(result.max_scores)
        return result.out, result.lse, result.max_scores

    @staticmethod
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, _: Any
    ) -> tuple[Any, ...]:
        scores, *rest = ctx.plan.counts
        out, lse, *given = ctx.saved_tensors
        wanted = ctx.needs_input_grad[7 : 7 + scores]
        found = input_gradients(ctx.plan.arguments(given), grad_out, grad_lse, out, lse, wanted)
        without = (None,) * sum(rest)
        return None, None, None, None, *found[:3], *found.captured, *without

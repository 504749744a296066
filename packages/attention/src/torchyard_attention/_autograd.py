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

from torchyard_attention._arguments import Arguments
from torchyard_attention._computation import gradients, outputs
from torchyard_attention._direct import is_plain
from torchyard_attention._operators import OPERATORS
from torchyard_attention.contract import AttentionResult

__all__ = ["InputGradients", "input_gradients", "recorded", "save"]


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
    """Compute the outputs of a plain call, see ``is_plain``, and let autograd record it."""
    out, found, greatest = _Attention.apply(  # type: ignore[no-untyped-call]
        arguments,
        lse,
        max_scores,
        use,
        *arguments[:3],
        *arguments.score_captured,
        *arguments.mask,
        *arguments.mask_captured,
    )
    return AttentionResult(out, found if lse else None, greatest)


def save(ctx: Any, arguments: Arguments, out: Tensor, lse: Tensor) -> None:
    """Keep in an autograd context what ``input_gradients`` needs."""
    lists = (arguments.score_captured, arguments.mask, arguments.mask_captured)
    ctx.save_for_backward(*arguments[:3], out, lse, *lists[0], *lists[1], *lists[2])
    ctx.set_materialize_grads(False)
    ctx.counts = tuple(len(tensors) for tensors in lists)
    nothing = out.new_empty(0)  # keep no input alive but through save_for_backward
    ctx.plain = arguments._replace(
        query=nothing,
        key=nothing,
        value=nothing,
        score_captured=[],
        mask=[],
        mask_captured=[],
    )


def input_gradients(
    ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, wanted: Sequence[bool]
) -> InputGradients:
    """Compute the gradients of a call's inputs from those of its outputs.

    Args:
        ctx: the context in which ``save`` kept the call.
        grad_out, grad_lse: None for zeros.
        wanted: which captured tensors of the score_mod get a gradient.
    """
    if grad_out is None and grad_lse is None:
        return InputGradients(None, None, None, [None] * len(wanted))
    saved = ctx.saved_tensors
    query, key, value, out, lse, *lists = saved
    scores, masks = ctx.counts[:2]
    arguments = ctx.plain._replace(
        query=query,
        key=key,
        value=value,
        score_captured=lists[:scores],
        mask=lists[scores : scores + masks],
        mask_captured=lists[scores + masks :],
    )
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    given = (grad_out, *saved) if grad_lse is None else (grad_out, grad_lse, *saved)
    # Where a graph of the gradients is wanted, the op refuses them.
    if not torch.is_grad_enabled() and is_plain(given):
        found = gradients(arguments, grad_out, grad_lse, out, lse, wanted)
        captured = list(found.captured) or [None] * len(wanted)
        return InputGradients(found.query, found.key, found.value, captured)
    of_query, of_key, of_value, marked = OPERATORS["backward"](
        grad_out, grad_lse, out, lse, *arguments.given(), list(wanted)
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
        save(ctx, arguments, result.out, result.lse)
        if result.max_scores is not None:
            ctx.mark_non_differentiable(result.max_scores)
        return result.out, result.lse, result.max_scores

    @staticmethod
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, _: Any
    ) -> tuple[Any, ...]:
        scores, *rest = ctx.counts
        found = input_gradients(ctx, grad_out, grad_lse, ctx.needs_input_grad[7 : 7 + scores])
        without = (None,) * sum(rest)
        return None, None, None, None, *found[:3], *found.captured, *without

"""Attention in torch operations that torch itself can differentiate, to any order.

Gradients of gradients, and derivatives of attention's tangents, are made of these. They hold the
scores of all pairs at once, as torch's own scaled_dot_product_attention does where it can be
differentiated twice. What is not finite at a hidden pair may reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention._arguments import Arguments
from torchyard_attention._direct import is_batch_of_gradients
from torchyard_attention._request import lse_dtype
from torchyard_attention.reference import attend

__all__ = [
    "composed",
    "composed_gradients",
    "floating",
    "pushforward",
    "vjp",
    "with_batched_slopes",
]

# Its types leave out what the pullback is called with.
vjp: Final[Any] = torch.func.vjp


def composed(arguments: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    """Return out in query's dtype, lse and max_scores in the scores', in which sums are taken."""
    dtype = lse_dtype(arguments.query)
    call = arguments.call(lse=True, max_scores=False)
    wide = [tensor.to(dtype) for tensor in arguments[:3]]
    out, lse, max_scores = attend(
        call, wide[0], wide[1], wide[2], tuple(arguments.score_captured), exact=False
    )
    return out.to(arguments.query.dtype), lse, max_scores


def floating(captured: Sequence[Tensor]) -> list[int]:
    """Return which captured tensors have derivatives."""
    return [place for place, tensor in enumerate(captured) if tensor.is_floating_point()]


def composed_gradients(
    arguments: Arguments, grad_out: Tensor, grad_lse: Tensor | None, wanted: Sequence[bool]
) -> tuple[Tensor, ...]:
    """Return the gradients of query, key, value and of the captured tensors that are wanted."""
    marked = [place for place, flag in enumerate(wanted) if flag]

    def forward(query: Tensor, key: Tensor, value: Tensor, *some: Tensor) -> Any:
        captured = list(arguments.score_captured)
        for place, tensor in zip(marked, some, strict=True):
            captured[place] = tensor
        moved = arguments._replace(query=query, key=key, value=value, score_captured=captured)
        return composed(moved)[:2]

    leaves = (*arguments[:3], *(arguments.score_captured[place] for place in marked))
    (_, lse), pull = vjp(forward, *leaves)
    slopes = (grad_out, torch.zeros_like(lse) if grad_lse is None else grad_lse)
    found: tuple[Tensor, ...] = pull(slopes)
    return found


def with_batched_slopes(
    arguments: Arguments, grad_out: Tensor, grad_lse: Tensor | None, wanted: Sequence[bool]
) -> tuple[Tensor, ...]:
    """Return the same where slopes are autograd's own batches (is_grads_batched).

    These pass through torch's operators alone, and not through torch.func.
    """
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in arguments[:3]]
        captured = [
            tensor.detach().requires_grad_(flag)
            for tensor, flag in zip(arguments.score_captured, wanted, strict=True)
        ]
        made = composed(
            arguments._replace(
                query=leaves[0], key=leaves[1], value=leaves[2], score_captured=captured
            )
        )
        pairs = [
            (output, slope)
            for output, slope in zip(made[:2], (grad_out, grad_lse), strict=True)
            if slope is not None and output.requires_grad
        ]
    leaves += [tensor for tensor in captured if tensor.requires_grad]
    found = torch.autograd.grad(
        [output for output, _ in pairs],
        leaves,
        [slope for _, slope in pairs],
        allow_unused=True,
        materialize_grads=True,
    )
    return tuple(found)


def pushforward(
    function: Callable[..., Any], primals: tuple[Tensor, ...], tangents: tuple[Tensor, ...]
) -> Any:
    """Return a function's value and its tangent, by two reverse passes.

    A pullback is linear in its argument, so its own pullback is the tangent. Forward mode cannot
    be used for it: torch allows one level of dual numbers, and the caller may be inside of one.
    """
    if any(is_batch_of_gradients(tangent) for tangent in tangents):
        return _with_batched_tangents(function, primals, tangents)
    value, pull = vjp(function, *primals)
    zeros = torch.utils._pytree.tree_map(torch.zeros_like, value)
    _, push = vjp(pull, zeros)
    (tangent,) = push(tangents)
    return value, tangent


def _with_batched_tangents(
    function: Callable[..., Any], primals: tuple[Tensor, ...], tangents: tuple[Tensor, ...]
) -> Any:
    """Do the same where tangents are autograd's own batches, which torch.func does not take."""
    with torch.enable_grad():
        leaves = [primal.detach().requires_grad_() for primal in primals]
        value = function(*leaves)
        values, spec = torch.utils._pytree.tree_flatten(value)
        slopes = [torch.zeros_like(part, requires_grad=True) for part in values]
        pulled = torch.autograd.grad(
            values, leaves, slopes, create_graph=True, allow_unused=True, materialize_grads=True
        )
        pairs = [
            (part, tangent)
            for part, tangent in zip(pulled, tangents, strict=True)
            if part.requires_grad
        ]
    found = torch.autograd.grad(
        [part for part, _ in pairs],
        slopes,
        [tangent for _, tangent in pairs],
        allow_unused=True,
        materialize_grads=True,
    )
    plain = [part.detach() for part in values]
    return tuple(torch.utils._pytree.tree_unflatten(parts, spec) for parts in (plain, list(found)))

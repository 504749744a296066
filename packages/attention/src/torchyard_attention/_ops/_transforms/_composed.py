"""Attention in torch operations that torch itself can differentiate, to any order.

Gradients of gradients, and derivatives of attention's tangents, are made of these. They hold the
scores of all pairs at once, as torch's own scaled_dot_product_attention does where it can be
differentiated twice. What is not finite at a hidden pair may reach them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from torchyard_attention._ops._arguments import Arguments
from torchyard_attention._ops._request import lse_dtype
from torchyard_attention.reference import attend
from torchyard_programs import pullback

__all__ = ["composed", "composed_gradients", "floating"]


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
    # Of slopes that are a batch, autograd's own, too.
    return pullback(forward, leaves, (grad_out, grad_lse))

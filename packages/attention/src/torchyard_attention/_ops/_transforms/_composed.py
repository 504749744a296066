"""Attention in torch operations that torch itself can differentiate, to any order.

Gradients of gradients, and derivatives of attention's tangents, are made of these. They hold the
scores of all pairs at once, as torch's own scaled_dot_product_attention does where it can be
differentiated twice. What is not finite at a hidden pair may reach them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from torchyard_attention._mods._trace import lse_dtype
from torchyard_attention._ops._transforms._plan import captured_of, with_captured, with_current_mask
from torchyard_attention.contract import AttentionCall
from torchyard_attention.reference import attend
from torchyard_programs import pullback

__all__ = ["composed", "composed_gradients", "floating"]


def composed(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    """Return out in query's dtype, lse and max_scores in the scores', in which sums are taken."""
    dtype = lse_dtype(call.query)
    call = with_current_mask(call)
    query, key, value = (tensor.to(dtype) for tensor in (call.query, call.key, call.value))
    out, lse, max_scores = attend(call, query, key, value, captured_of(call), exact=False)
    return out.to(call.query.dtype), lse, max_scores


def floating(captured: Sequence[Tensor]) -> list[int]:
    """Return which captured tensors have derivatives."""
    return [place for place, tensor in enumerate(captured) if tensor.is_floating_point()]


def composed_gradients(
    call: AttentionCall, grad_out: Tensor, grad_lse: Tensor | None
) -> tuple[Tensor, ...]:
    """Return the gradients of query, key, value and of the captured tensors that are marked."""
    marked = [place for place, flag in enumerate(call.captured_grad) if flag]

    def forward(query: Tensor, key: Tensor, value: Tensor, *some: Tensor) -> Any:
        moved = replace(call, query=query, key=key, value=value)
        return composed(with_captured(moved, dict(zip(marked, some, strict=True))))[:2]

    captured = captured_of(call)
    leaves = (call.query, call.key, call.value, *(captured[place] for place in marked))
    # Of slopes that are a batch, autograd's own, too.
    return pullback(forward, leaves, (grad_out, grad_lse))

"""The reference: contract.py's equations in float64, on dense tensors.

Every other implementation is measured against it, so it is written to be read and not to be fast:
it holds several [B, Hq, Sq, Sk] tensors at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients, AttentionResult
from torchyard_attention.dropout import dropout_factors
from torchyard_attention.visibility import dense_visibility

__all__ = ["attend", "reference_backward", "reference_forward"]


def reference_forward(call: AttentionCall) -> AttentionResult:
    """Compute ``attention/1`` in float64 and return the contract's dtypes."""
    inputs = (call.query.double(), call.key.double(), call.value.double())
    out, lse, max_scores = attend(call, *inputs, _captured(call), exact=not _finite(*inputs))
    dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    return AttentionResult(
        out=out.to(call.query.dtype).contiguous(),
        lse=lse.to(dtype) if call.lse else None,
        max_scores=max_scores.to(dtype) if call.max_scores else None,
    )


def reference_backward(
    call: AttentionCall, out: Tensor, lse: Tensor, grad_out: Tensor, grad_lse: Tensor | None
) -> AttentionGradients:
    """Compute ``attention_backward/1`` by torch.autograd on the float64 forward.

    ``out`` and ``lse`` are not read: they are what some forward rounded.
    """
    # Inside an op's kernel gradients are off; fresh leaves keep the caller's graph out of it.
    with torch.enable_grad():
        leaves = [
            tensor.detach().double().requires_grad_()
            for tensor in (call.query, call.key, call.value)
        ]
        flags = call.captured_grad or (False,) * len(_captured(call))
        captured = [
            tensor.detach().requires_grad_(wanted)
            for tensor, wanted in zip(_captured(call), flags, strict=True)
        ]
        # A row that is not finite must not reach the gradient of a key that it does not see.
        exact = not _finite(*leaves, grad_out, *(() if grad_lse is None else (grad_lse,)))
        result = attend(call, leaves[0], leaves[1], leaves[2], tuple(captured), exact=exact)
        outputs, cotangents = [result[0]], [grad_out.double()]
        if grad_lse is not None:
            # A row that sees nothing has the constant -inf; its cotangent says nothing.
            outputs.append(result[1].masked_fill(result[1] == -math.inf, 0.0))
            cotangents.append(grad_lse.double())
        wanted = [*leaves, *(tensor for tensor in captured if tensor.requires_grad)]
        # Scores that ignore query and key make an lse that depends on nothing.
        pairs = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad]
        found = iter(
            torch.autograd.grad(
                [output for output, _ in pairs],
                wanted,
                [cotangent for _, cotangent in pairs],
                allow_unused=True,
            )
        )
    inputs = (call.query, call.key, call.value)
    query, key, value = (_as(next(found), tensor) for tensor in inputs)
    originals = call.score_mod.captured if call.score_mod is not None else ()
    return AttentionGradients(
        query,
        key,
        value,
        tuple(
            _as(next(found), tensor) if leaf.requires_grad else None
            for leaf, tensor in zip(captured, originals, strict=True)
        ),
    )


def attend(
    call: AttentionCall,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    captured: tuple[Tensor, ...],
    *,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return out [B, Hq, Sq, V], lse and max_scores [B, Hq, Sq], all in the inputs' dtype.

    ``exact`` keeps what is not finite within the pairs that are visible, at the cost of a tensor
    [B, Hq, Sq, Sk, D].
    """
    batch, q_heads, q_length, _ = query.shape
    kv_length = key.shape[2]
    group = q_heads // max(1, key.shape[1])
    key = key.repeat_interleave(group, dim=1)
    value = value.repeat_interleave(group, dim=1)
    if call.mask is None:
        visible = query.new_ones((1, 1, q_length, kv_length), dtype=torch.bool)
    else:
        visible = dense_visibility(call.mask, q_length, kv_length)

    raw = _scores(query, key, visible, exact) * call.scale
    # What is hidden is 0 before the score_mod too: its derivative may be infinite there.
    raw = raw.where(visible, 0.0)
    if call.score_mod is not None:
        index = (
            torch.arange(size, device=query.device)
            for size in (batch, q_heads, q_length, kv_length)
        )
        raw = call.score_mod.apply(raw, *index, *captured).to(raw.dtype)
    scores = torch.where(visible, raw, -math.inf).expand(batch, q_heads, q_length, kv_length)

    if kv_length == 0:
        max_scores = query.new_full((batch, q_heads, q_length), -math.inf)
    else:
        max_scores = scores.detach().amax(dim=-1)
    empty = max_scores == -math.inf
    shift = max_scores.masked_fill(empty, 0.0)
    weights = torch.exp(scores - shift.unsqueeze(-1))
    total = weights.sum(dim=-1).masked_fill(empty, 1.0)
    lse = (shift + total.log()).masked_fill(empty, -math.inf)
    weights = weights / total.unsqueeze(-1)
    if call.dropout is not None:
        places = (batch, q_heads, q_length, kv_length)
        b, h, q, k = (torch.arange(size, device=query.device) for size in places)
        weights = weights * dropout_factors(call.dropout, (b, h, q, k), q_heads, weights.dtype)
    out = _mix(weights, value, visible, exact)
    return out, lse, max_scores


def _scores(query: Tensor, key: Tensor, visible: Tensor, exact: bool) -> Tensor:
    """Return sum_d query * key, in which a hidden key takes no part, in gradients neither."""
    if not exact:
        return query @ key.mT
    seen = key.unsqueeze(2).where(visible.unsqueeze(-1), 0.0)
    rows = query.unsqueeze(3).where(visible.unsqueeze(-1), 0.0)
    return (rows * seen).sum(dim=-1)


def _mix(weights: Tensor, value: Tensor, visible: Tensor, exact: bool) -> Tensor:
    """Return sum_k weights * value, in which a hidden value takes no part, as in scores."""
    if not exact:
        return weights @ value
    seen = value.unsqueeze(2).where(visible.unsqueeze(-1), 0.0)
    return (weights.unsqueeze(-1) * seen).sum(dim=-2)


def _finite(*tensors: Tensor) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


def _captured(call: AttentionCall) -> tuple[Tensor, ...]:
    tensors = call.score_mod.captured if call.score_mod is not None else ()
    return tuple(
        tensor.detach().double() if tensor.is_floating_point() else tensor for tensor in tensors
    )


def _as(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    return gradient.to(like.dtype).contiguous()

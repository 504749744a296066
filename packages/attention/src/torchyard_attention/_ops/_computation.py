"""A call's request, and its outputs and gradients by the implementation that the registry chooses.

The choice is made here, inside of the op, from sizes and dtypes only, so eager calls, compiled
graphs, exported programs and fake tensors take the same decision.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import decision_cache
from torchyard_attention._mask_blocks._source import current
from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention._mods._trace import lse_dtype
from torchyard_attention._ops._fast_path import enable
from torchyard_attention._ops._layout import in_order
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionCall,
    AttentionGradients,
    AttentionRequest,
    AttentionResult,
    Forward,
    MaskKind,
    ScoreKind,
)
from torchyard_programs import stored

__all__ = ["gradients", "outputs", "request_of"]


def outputs(call: AttentionCall, use: str = "") -> AttentionResult:
    """Compute the outputs.

    Args:
        call: the call.
        use: the implementation that is demanded; empty: none.
    """
    call = _readable(call)
    request = request_of(call, deterministic=torch.are_deterministic_algorithms_enabled())
    cache = decision_cache()
    chosen: Forward = registry().resolve(FORWARD, request, use=use or None)
    if not use and not call.options and call.dropout is None:
        enable(cache, chosen, request, call)
    result = chosen(call)
    # As in_order returns it, without the call.
    if call.query.is_contiguous():
        return result
    out = in_order(result.out, call.query)
    return result if out is result.out else AttentionResult(out, result.lse, result.max_scores)


def gradients(
    call: AttentionCall, out: Tensor, lse: Tensor, grad_out: Tensor, grad_lse: Tensor | None
) -> AttentionGradients:
    """Compute the gradients of query, key, value and of the captured tensors that are marked.

    Args:
        call: the call, as a backward gets it.
        out, lse: its outputs.
        grad_out, grad_lse: gradients of the outputs.
    """
    call = _readable(call)
    request = request_of(call, deterministic=torch.are_deterministic_algorithms_enabled())
    found: AttentionGradients = registry().resolve(BACKWARD, request)(
        call, out, lse, grad_out, grad_lse
    )
    return found


def _readable(call: AttentionCall) -> AttentionCall:
    """Return a call as kernels read it: captured tensors with their values in memory, and the bits
    of the mask up to date with what its mask_mod captures."""
    mask, score = call.mask, call.score_mod
    if mask is not None and mask.source is not None:
        mask = current(mask, (call.query.shape[2], call.key.shape[2]))
    if score is not None and score.captured:
        captured = stored(score.captured)
        if any(new is not old for new, old in zip(captured, score.captured, strict=True)):
            score = TracedMod(score.text, captured)
    if mask is call.mask and score is call.score_mod:
        return call
    return replace(call, mask=mask, score_mod=score)


def request_of(call: AttentionCall, *, deterministic: bool) -> AttentionRequest:
    """Return a call's request; reads sizes, strides and dtypes only."""
    query, key, value, mask = call.query, call.key, call.value, call.mask
    kind = ScoreKind.NONE
    text = ""
    traits: tuple[tuple[str, int], ...] = ()
    if call.score_mod is not None:
        assert isinstance(call.score_mod, TracedMod)
        kind = ScoreKind.GENERAL
        if call.score_mod.pointwise(lse_dtype(query)):
            kind, text = ScoreKind.POINTWISE, call.score_mod.text
            traits = tuple([(_name(t.dtype), t.ndim) for t in call.score_mod.captured])
    pages = call.pages
    return AttentionRequest(
        device=query.device.type,
        dtype=_name(query.dtype),
        batch=int(query.shape[0]),
        q_heads=int(query.shape[1]),
        kv_heads=int(key.shape[1]),
        q_length=int(query.shape[2]),
        kv_length=int(key.shape[2]) * (1 if pages is None else int(pages.table.shape[1])),
        head_dim=int(query.shape[3]),
        value_dim=int(value.shape[3]),
        score=kind,
        mask=MaskKind.NONE if mask is None else MaskKind.CAUSAL if mask.causal else MaskKind.BLOCKS,
        block_size=(0, 0) if mask is None else mask.block_size,
        lse=call.lse,
        max_scores=call.max_scores,
        grad=call.grad,
        unit_stride=all(t.stride(3) == 1 or t.shape[3] == 1 for t in (query, key, value)),
        deterministic=deterministic,
        score_text=text,
        score_captured=traits,
        captured_grad=call.captured_grad if call.grad and any(call.captured_grad) else (),
        page_size=0 if pages is None else int(key.shape[2]),
        dropout=call.dropout is not None,
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype)[6:]

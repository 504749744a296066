"""A call's request, and its outputs and gradients by the implementation that the registry chooses.

The choice is made here, inside of the op, from sizes and dtypes only, so eager calls, compiled
graphs, exported programs and fake tensors take the same decision. A repeated call without
gradients takes the fast path, from ``flex_attention`` and from the op that graphs call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import FastPath, decision_cache
from torchyard.torch_compat import deterministic_algorithms
from torchyard_attention._mask_blocks._source import current, stale
from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention._mods._recordings import Recording, is_cached, one_text
from torchyard_attention._mods._trace import IDENTITY, lse_dtype
from torchyard_attention._ops._arguments import COMMON, SCORE_TEXT
from torchyard_attention._ops._layout import in_order
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionCall,
    AttentionGradients,
    AttentionRequest,
    AttentionResult,
    Forward,
    MaskBlocks,
    MaskKind,
    ScoreKind,
)
from torchyard_attention.fast_path import PathMask
from torchyard_programs import stored

__all__ = [
    "FAST_PATH",
    "enable",
    "gradients",
    "op_outputs",
    "outputs",
    "request_of",
    "try_call",
    "try_op",
    "with_lasting_text",
]

FAST_PATH: Final = FastPath(FORWARD)


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
    if mask is not None and mask.source is not None and mask.source.captured:
        mask = current(mask, (call.query.shape[2], call.key.shape[2]))
        assert mask.source is not None
        captured = stored(mask.source.captured)
        if _differs(captured, mask.source.captured):
            mask = replace(mask, source=replace(mask.source, captured=captured))
    if score is not None and score.captured:
        captured = stored(score.captured)
        if _differs(captured, score.captured):
            score = TracedMod(score.text, captured)
    if mask is call.mask and score is call.score_mod:
        return call
    return replace(call, mask=mask, score_mod=score)


def _differs(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return any(one is not other for one, other in zip(some, others, strict=True))


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
            traits = _traits(call.score_mod.captured)
    pages = call.pages
    mask_text, of_mask = _mask_program(mask)
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
        mask_text=mask_text,
        mask_captured=of_mask,
        page_size=0 if pages is None else int(key.shape[2]),
        dropout=call.dropout is not None,
    )


def _mask_program(mask: MaskBlocks | None) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the program of a block mask and what it captures; of others their kind says all."""
    source = None if mask is None or mask.causal else mask.source
    if source is None or not TracedMod(source.text, source.captured).pointwise(torch.float32):
        return "", ()
    return source.text, _traits(source.captured)


def _traits(captured: Sequence[Tensor]) -> tuple[tuple[str, int], ...]:
    return tuple([(_name(tensor.dtype), tensor.ndim) for tensor in captured])


def _name(dtype: torch.dtype) -> str:
    return str(dtype)[6:]


def try_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: PathMask | None,
    scale: float | None,
    enable_gqa: bool,
    lse: bool,
    score: Recording | None,
) -> Tensor | tuple[Tensor, Tensor] | None:
    """Compute a call whose request was enabled; None, without an effect, for any other.

    Nothing is assumed of the arguments. The caller makes sure that nothing is being compiled.
    """
    if deterministic_algorithms():
        return None
    found: Tensor | tuple[Tensor, Tensor] | None = FAST_PATH.try_call(
        None, query, key, value, mask, scale, enable_gqa, lse, score
    )
    if found is None or query.is_contiguous():
        return found
    if isinstance(found, tuple):
        return in_order(found[0], query), *found[1:]
    return in_order(found, query)


def enable(
    cache: dict[Any, Any], forward: Forward, request: AttentionRequest, call: AttentionCall
) -> None:
    """Let calls that make the request take the fast path, where the forward offers one.

    Args:
        cache: the decision cache, from before the decision.
        forward: what the registry decided for, with no demand of the call itself.
        request: what it decided.
        call: what made the request.
    """
    if request.grad or request.score is ScoreKind.GENERAL:
        return
    # Another call finds this one's program only where the recording was stored.
    if call.score_mod is None or is_cached(call.score_mod.text):
        FAST_PATH.enable(cache, forward, request, call)


def try_op(given: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor] | None:
    """Compute a call of the op whose request was enabled; None, without an effect, for any other.

    Whatever called the op had its turn above, so only what is active in its kernel matters. Nothing
    is assumed of the arguments, which nobody but a fake kernel may have checked.

    Args:
        given: the forward op's arguments.
    """
    options, lse, max_scores, grad, use = given[COMMON - 1 : COMMON + 4]
    # What is left is dropout, unless it drops nothing.
    if any(given[COMMON + 4 : COMMON + 5]) or options or max_scores or grad or use:
        return None
    query, key, value, captured, text, mask, block_size, causal, mask_captured = given[:9]
    versions, scale = given[10:12]
    path_mask = None
    if mask:
        if query.dim() != 4 or key.dim() != 4:
            return None
        if mask_captured and stale(mask_captured, versions or ()):
            return None
        # Whoever made the graph compared the lengths, which a mask in the op's form does not have.
        blocks = MaskBlocks((block_size[0], block_size[1]), *mask)
        path_mask = PathMask(blocks, (query.shape[2], key.shape[2]), causal)
    score = None
    if text != IDENTITY:
        if query.dtype == torch.float64:
            return None
        score = one_text(text), tuple(captured or ())
    found = try_call(query, key, value, path_mask, scale, True, lse, score)
    if found is None:
        return None
    return op_outputs(query, *found) if isinstance(found, tuple) else op_outputs(query, found)


def with_lasting_text(given: list[Any]) -> None:
    """Replace a score's program by the object that later calls pass too, which a path needs.

    Each call of an op passes another object. Programs for float64 scores are left as they are: they
    may be others than a function's for float32.

    Args:
        given: the forward op's arguments, or the first of them.
    """
    query, text = given[0], given[SCORE_TEXT]
    if text != IDENTITY and query.dtype != torch.float64:
        given[SCORE_TEXT] = one_text(text)


def op_outputs(
    query: Tensor, out: Tensor, lse: Tensor | None = None, max_scores: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs as the op does, with an empty tensor for each that there is not."""
    dtype = lse_dtype(query)
    return (
        out,
        query.new_empty(0, dtype=dtype) if lse is None else lse,
        query.new_empty(0, dtype=dtype) if max_scores is None else max_scores,
    )

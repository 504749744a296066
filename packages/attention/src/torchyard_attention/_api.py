"""``flex_attention``: torch's signature, computed by the best implementation for the request."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchyard import Decision, note_use, registry
from torchyard import arguments as checks
from torchyard.dispatch import is_plain_call
from torchyard_attention._block_mask import BlockMask
from torchyard_attention._block_mask._operand import as_block_mask, mask_operand, path_mask
from torchyard_attention._mods._recordings import Recording, cached_recording, recorded
from torchyard_attention._mods._trace import lse_dtype
from torchyard_attention._ops import _autograd
from torchyard_attention._ops._arguments import score_mod_of
from torchyard_attention._ops._attention import dispatched
from torchyard_attention._ops._computation import outputs, request_of, try_call
from torchyard_attention._validation import (
    check_call,
    check_flags,
    check_inputs,
    parse_dropout,
    parse_options,
)
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionCall
from torchyard_attention.dropout import Dropout, new_seed

ScoreModFunction = Callable[[Any, Any, Any, Any, Any], Any]


class AuxRequest(NamedTuple):
    """Which auxiliary outputs to return.

    Attributes:
        lse: the log-sum-exp of each row's scores.
        max_scores: the greatest of each row's scores.
    """

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Auxiliary outputs: float32 (float64 for float64 inputs) [B, Hq, Sq]; None if not asked for.

    Attributes:
        lse: natural logarithm; -inf for a row that sees no key. Differentiable.
        max_scores: -inf for a row that sees no key. No gradient is defined.
    """

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreModFunction | None = None,
    block_mask: BlockMask | Any | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
    *,
    return_aux: AuxRequest | Any | None = None,
    implementation: str | None = None,
    dropout_p: float = 0.0,
) -> Any:
    """Compute attention with modified scores over the visible pairs of a block mask.

    The semantics are those of ``torchyard_attention.contract``; the signature is that of
    torch.nn.attention.flex_attention.flex_attention (torch 2.13), with ``implementation`` and
    ``dropout_p`` added.
    Works the same in eager mode, under torch.compile(fullgraph=True), in torch.export and with
    fake tensors; differentiable once in query, key, value and the tensors that score_mod captures.

    Args:
        query: [B, Hq, Sq, D], float32, bfloat16, float16 or float64, any strides. Under
            torch.autocast query, key and value are cast to its dtype, but for float64.
        key: [B, Hkv, Sk, D], or batch 1 for every batch of query.
        value: [B, Hkv, Sk, V], likewise.
        score_mod: ``(score, b, h, q_idx, kv_idx) -> score`` on scalars; any torch functions, and
            tensors that it captures. It is recorded, once per call at most, not run per pair.
        block_mask: which pairs are visible: this package's BlockMask or torch's. None: all are.
        scale: multiplies the raw scores; None: 1 / sqrt(D).
        enable_gqa: whether Hkv may be smaller than Hq, and divide it.
        return_lse: whether to return (out, lse). torch calls it deprecated; see return_aux.
        kernel_options: integers by name. Those named ``<plugin>.<name>``, such as
            ``cpu.rows_per_item``, tune that plugin's kernels where they compute the call. The
            others are torch's: accepted and ignored, except a BACKEND, which is refused; demand
            an implementation instead.
        return_aux: which auxiliary outputs to return, as (out, AuxOutput).
        implementation: demand this implementation of ``attention/1``; an error where it cannot.
        dropout_p: the probability with which a weight counts as 0 for out, 0 to 1; the others are
            divided by 1 - dropout_p. One seed per call is drawn from torch's generator of query's
            device, and which weights are dropped follows from it alone. Pass 0 outside of training.

    Returns:
        out [B, Hq, Sq, V] in query's dtype and stride order; or (out, lse); or (out, AuxOutput).

    Raises:
        ValueError, TypeError: an argument does not fit; names it.
        ProgramError: score_mod does something that cannot be recorded.
        torchyard.UnsupportedError: no implementation supports the call; shows every candidate.
    """
    if return_lse is True and return_aux is not None:
        raise ValueError(
            "return_lse, return_aux: expected at most one, got both; use "
            "return_aux=AuxRequest(lse=True)"
        )
    if return_aux is not None or implementation is not None:
        check_flags("flex_attention", return_aux, implementation)
    # A repeated call without gradients needs no more than its kernel.
    plain = implementation is None and kernel_options is None and type(dropout_p) is float
    if plain and dropout_p == 0.0 and not torch.compiler.is_compiling():
        score = None if score_mod is None else cached_recording(score_mod)
        if score is not None or score_mod is None:
            known = _try_fast_path(
                query, key, value, score, block_mask, scale, enable_gqa, return_lse, return_aux
            )
            if known is not None:
                return known
    aux = AuxRequest(lse=return_lse) if return_aux is None else return_aux
    checks.boolean("flex_attention", "return_lse", return_lse)
    call = _call(
        query,
        key,
        value,
        score_mod,
        block_mask,
        scale,
        enable_gqa,
        aux,
        kernel_options,
        dropout_p,
        new_seed,
    )
    if not torch.compiler.is_compiling():
        _note_use(query.device.type)
    use = implementation or ""
    captured = () if call.score_mod is None else call.score_mod.captured
    if not is_plain_call((call.query, call.key, call.value, *captured)):
        result = dispatched(call, use)
    else:
        result = _autograd.recorded(call, use) if call.grad else outputs(call, use)
    if return_aux is not None:
        return result.out, AuxOutput(result.lse if aux.lse else None, result.max_scores)
    return (result.out, result.lse) if return_lse else result.out


# Without a frame of ours, so that the warning names the caller's line.
_note_use = cache(partial(note_use, "attention.flex_attention"))


def _try_fast_path(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Recording | None,
    block_mask: BlockMask | Any | None,
    scale: float | None,
    enable_gqa: bool,
    return_lse: bool,
    return_aux: AuxRequest | Any | None,
) -> Any:
    """Return what the call returns by the fast path; None where that does not compute it."""
    mask = None
    if block_mask is not None:
        if type(block_mask) is not BlockMask:
            return None
        mask = block_mask._path_mask
        # One that captures tensors may have to be evaluated again.
        if mask is None or block_mask._mask_captured:
            mask = path_mask(block_mask)
            if mask is None:
                return None
    if return_aux is None:
        return try_call(query, key, value, mask, scale, enable_gqa, return_lse, score)
    if return_aux.max_scores:
        return None
    found = try_call(query, key, value, mask, scale, enable_gqa, return_aux.lse, score)
    if found is None:
        return None
    return (found[0], AuxOutput(found[1])) if return_aux.lse else (found, AuxOutput())


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreModFunction | None = None,
    block_mask: BlockMask | Any | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_aux: AuxRequest | None = None,
    implementation: str | None = None,
    backward: bool = False,
    dropout_p: float = 0.0,
) -> Decision:
    """Return the decision that :func:`flex_attention` would take, without computing anything.

    Takes the same arguments, real tensors or fake ones; ``backward`` asks for the decision of the
    backward pass.
    """
    checks.boolean("explain", "backward", backward)
    check_flags("explain", return_aux, implementation)
    aux = return_aux or AuxRequest()
    call = _call(
        query,
        key,
        value,
        score_mod,
        block_mask,
        scale,
        enable_gqa,
        aux,
        None,
        dropout_p,
        # A decision does not depend on the seed, and none is drawn for it.
        lambda device: torch.empty(0, device=device),
    )
    if backward:
        captured = () if call.score_mod is None else call.score_mod.captured
        wanted = tuple(tensor.requires_grad for tensor in captured)
        call = replace(call, lse=True, grad=True, captured_grad=wanted)
    request = request_of(call, deterministic=torch.are_deterministic_algorithms_enabled())
    return registry().decide(
        BACKWARD if backward else FORWARD, request, use=None if backward else implementation
    )


def checked_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreModFunction | None = None,
    block_mask: BlockMask | Any | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionCall:
    """Return the call that flex_attention makes of these arguments, checked and traced."""
    return _call(
        query,
        key,
        value,
        score_mod,
        block_mask,
        scale,
        enable_gqa,
        AuxRequest(),
        None,
        0.0,
        new_seed,
    )


def _call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreModFunction | None,
    block_mask: BlockMask | Any | None,
    scale: float | None,
    enable_gqa: bool,
    aux: AuxRequest | Any,
    kernel_options: dict[str, Any] | None,
    dropout_p: float,
    seed: Callable[[torch.device], Tensor],
) -> AttentionCall:
    """Check the arguments, record the score_mod, and return the call."""
    tensors = {"query": query, "key": key, "value": value}
    check_call("flex_attention", tensors, score_mod, scale, enable_gqa)
    options = parse_options("flex_attention", kernel_options)
    block_mask = as_block_mask(block_mask)
    query, key, value = autocast_inputs(query, key, value)
    check_inputs(query, key, value, enable_gqa)
    mask = mask_operand(block_mask, query, key)
    if key.shape[0] != query.shape[0]:
        key = key.expand(query.shape[0], -1, -1, -1)
        value = value.expand(query.shape[0], -1, -1, -1)
    score = None
    if score_mod is not None:
        leaves = (query, key)
        score = score_mod_of(*recorded(score_mod, lse_dtype(query), query.device, leaves))
    probability = parse_dropout(dropout_p)
    inputs = (query, key, value, *(() if score is None else score.captured))
    grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    return AttentionCall(
        query,
        key,
        value,
        score,
        mask,
        1.0 / math.sqrt(query.shape[3]) if scale is None else float(scale),
        lse=aux.lse or grad,
        max_scores=aux.max_scores,
        options=options,
        dropout=Dropout(probability, seed(query.device)) if probability else None,
        grad=grad,
    )


def autocast_inputs(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value in autocast's dtype where it is on for query's device.

    As torch's own attentions do: tensors of any floating point dtype but float64 are cast, each by
    itself, and gradients come back in their own dtypes. Where autocast is off, the same tensors.
    """
    of = "autocast_inputs"
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        checks.instance(of, name, tensor, Tensor, "a tensor")
    device = query.device.type
    if not _has_autocast(query) or not torch.is_autocast_enabled(device):
        return query, key, value
    dtype = torch.get_autocast_dtype(device)
    return _cast(query, dtype), _cast(key, dtype), _cast(value, dtype)


def _has_autocast(query: Tensor) -> bool:
    """Return whether query's device has autocast; torch raises for the state of any other."""
    # Dynamo of torch 2.11 cannot trace torch's answer. Devices of compiled graphs have autocast.
    if torch.compiler.is_dynamo_compiling():
        return not query.is_meta
    return torch.amp.is_autocast_available(query.device.type)


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.dtype == torch.float64 or not tensor.is_floating_point():
        return tensor
    return tensor.to(dtype)

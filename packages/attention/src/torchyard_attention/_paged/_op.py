"""The op of attention over pages: ``torch.ops.torchyard_attention.paged_forward``.

It has no gradient: a cache has no history.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import is_plain_call
from torchyard_attention._mods._trace import IDENTITY, lse_dtype
from torchyard_attention._ops._arguments import options_of, options_text, score_mod_of
from torchyard_attention._ops._computation import op_outputs, request_of
from torchyard_attention._ops._operators import OPERATORS, isolated
from torchyard_attention._ops._transforms._refused import constant
from torchyard_attention.contract import (
    FORWARD,
    AttentionCall,
    AttentionRequest,
    AttentionResult,
    Forward,
    MaskBlocks,
)
from torchyard_attention.pages import KeyPages, gathered, reads_pages

__all__ = ["flattened", "paged_forward", "paged_request"]

# mask is empty, or the six tensors of MaskBlocks in their order.
_SCHEMA: Final = (
    "paged_forward(Tensor query, Tensor key, Tensor value, Tensor table, Tensor lengths, "
    "Tensor[] score_captured, str score_text, Tensor[] mask, int[] block_size, float scale, "
    "str options, bool lse, bool max_scores, str use) -> (Tensor, Tensor, Tensor)"
)


def paged_forward(call: AttentionCall, use: str = "") -> AttentionResult:
    """Compute the outputs, through torch's dispatcher where anything else takes part in the call.

    Args:
        call: the call, with pages.
        use: the implementation that is demanded; empty: none.
    """
    arguments = flattened(call)
    if is_plain_call((*arguments[:5], *arguments[5])):
        return _compute(call, use)
    outputs = OPERATORS["paged_forward"](*arguments, use)
    return AttentionResult(
        outputs[0], outputs[1] if call.lse else None, outputs[2] if call.max_scores else None
    )


def flattened(call: AttentionCall) -> list[Any]:
    """Return the op's arguments except the demanded implementation."""
    score, mask, pages = call.score_mod, call.mask, call.pages
    assert pages is not None
    return [
        call.query,
        call.key,
        call.value,
        pages.table,
        pages.lengths,
        [] if score is None else list(score.captured),
        IDENTITY if score is None else score.text,
        [] if mask is None else list(mask.tensors),
        [0, 0] if mask is None else list(mask.block_size),
        call.scale,
        options_text(call.options),
        call.lse,
        call.max_scores,
    ]


def paged_request(call: AttentionCall) -> AttentionRequest:
    """Return the request of a call with pages."""
    return request_of(call, deterministic=torch.are_deterministic_algorithms_enabled())


def _compute(call: AttentionCall, use: str) -> AttentionResult:
    forward: Forward = registry().resolve(FORWARD, paged_request(call), use=use or None)
    return forward(call if reads_pages(forward) else gathered(call))


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    lengths: Tensor,
    captured: list[Tensor],
    text: str,
    tensors: list[Tensor],
    block_size: list[int],
    scale: float,
    options: str,
    lse: bool,
    max_scores: bool,
    use: str,
) -> tuple[Tensor, Tensor, Tensor]:
    call = AttentionCall(
        query,
        key,
        value,
        score_mod_of(text, captured),
        MaskBlocks((block_size[0], block_size[1]), *tensors) if tensors else None,
        scale,
        lse,
        max_scores,
        options_of(options),
        pages=KeyPages(table, lengths),
    )
    result = _compute(call, use)
    return op_outputs(query, result.out, result.lse, result.max_scores)


def _forward_fake(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, _, value, *_ = args
    lse, max_scores, _ = args[-3:]
    rows = query.shape[:3]
    dtype = lse_dtype(query)
    return (
        query.new_empty((*rows, value.shape[3])),
        query.new_empty(rows if lse else (0,), dtype=dtype),
        query.new_empty(rows if max_scores else (0,), dtype=dtype),
    )


OPERATORS.define(
    _SCHEMA,
    isolated(_forward),
    _forward_fake,
    transformed=constant(
        "PagedStep.attention",
        derivative=(
            "a cache keeps no history, so attention over its pages has no derivative; detach the "
            "query or call under torch.no_grad(), or use flex_attention on keys and values"
        ),
        mapped=(
            "expected tensors that are not mapped over; pass several sequences as one step, or "
            "several queries as the rows of one"
        ),
    ),
)

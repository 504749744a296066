"""The op of attention over pages: ``torch.ops.torchyard_attention.paged_forward``.

It has no gradient: what a cache holds has no history.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torchyard import registry
from torchyard.dispatch import is_plain_call
from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention._mods._trace import IDENTITY
from torchyard_attention._ops._fast_path import op_outputs
from torchyard_attention._ops._operators import OPERATORS
from torchyard_attention._ops._request import lse_dtype, request_of
from torchyard_attention._ops._transforms._refused import constant
from torchyard_attention._options import parse_options
from torchyard_attention._torch_compat import as_outside_of_ops
from torchyard_attention.contract import (
    FORWARD,
    AttentionCall,
    AttentionRequest,
    AttentionResult,
    Forward,
    MaskBlocks,
)
from torchyard_attention.pages import KeyPages, gathered, reads_pages

# mask is empty, or the six tensors of MaskBlocks in their order.
_SCHEMA: Final = (
    "paged_forward(Tensor query, Tensor key, Tensor value, Tensor table, Tensor lengths, "
    "Tensor[] score_captured, str score_text, Tensor[] mask, int[] block_size, float scale, "
    "str options, bool lse, bool max_scores, str use) -> (Tensor, Tensor, Tensor)"
)


class PagedArguments(NamedTuple):
    """The op's arguments but the demanded implementation, in its order."""

    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor
    lengths: Tensor
    score_captured: list[Tensor]
    score_text: str
    mask: list[Tensor]
    block_size: list[int]
    scale: float
    options: str
    lse: bool
    max_scores: bool

    def call(self) -> AttentionCall:
        """Return the contract's form."""
        mask = None
        if self.mask:
            mask = MaskBlocks((self.block_size[0], self.block_size[1]), *self.mask)
        score_mod = None
        if self.score_text != IDENTITY:
            score_mod = TracedMod(self.score_text, tuple(self.score_captured))
        return AttentionCall(
            self.query,
            self.key,
            self.value,
            score_mod,
            mask,
            self.scale,
            self.lse,
            self.max_scores,
            parse_options(self.options) if self.options else (),
            pages=KeyPages(self.table, self.lengths),
        )


def paged_request(call: AttentionCall) -> AttentionRequest:
    """Describe a call with pages; reads sizes, strides and dtypes only."""
    assert call.pages is not None
    deterministic = torch.are_deterministic_algorithms_enabled()
    request = request_of(call, causal=False, grad=False, deterministic=deterministic)
    return _with_pages(request, int(call.pages.table.shape[1]))


@lru_cache(maxsize=1024)
def _with_pages(request: AttentionRequest, width: int) -> AttentionRequest:
    page_size = request.kv_length
    return replace(request, kv_length=width * page_size, page_size=page_size)


def paged_forward(arguments: PagedArguments, use: str | None) -> AttentionResult:
    """Compute the outputs, through torch's dispatcher where anything else takes part in the call.

    Args:
        arguments: the call.
        use: the implementation that is demanded, or None.
    """
    if is_plain_call((*arguments[:5], *arguments.score_captured)):
        return _compute(arguments, use)
    outputs = OPERATORS["paged_forward"](*arguments, use or "")
    return AttentionResult(
        outputs[0],
        outputs[1] if arguments.lse else None,
        outputs[2] if arguments.max_scores else None,
    )


def _compute(arguments: PagedArguments, use: str | None) -> AttentionResult:
    call = arguments.call()
    forward: Forward = registry().resolve(FORWARD, paged_request(call), use=use)
    return forward(call if reads_pages(forward) else gathered(call))


def _forward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    *rest, use = args
    arguments = PagedArguments(*rest)
    with as_outside_of_ops(), torch.no_grad():
        result = _compute(arguments, use or None)
    return op_outputs(arguments.query, result.out, result.lse, result.max_scores)


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
    _forward,
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

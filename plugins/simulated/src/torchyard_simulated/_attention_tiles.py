"""Attention in tiles of queries and keys with an online softmax, in torch operators.

FlashAttention-2 (arXiv 2307.08691), algorithms 1 and 2. B batches, H key heads, G query heads per
key head, R rows of a tile of queries, C keys of a tile. Tolerance: that of sums over Sk terms in
float32 (float64 for float64 inputs).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients, AttentionResult
from torchyard_simulated._attention_mask import BlockRows

__all__ = ["backward", "forward"]

_TILE = 128  # rows and keys per tile without a mask


@dataclass(frozen=True, slots=True, eq=False)
class _QueryTile:
    rows: slice
    visible: Tensor | None  # bool, broadcastable to [B, H, G, R, Sk]


class _Problem:
    """A call with its heads split into [key heads, query heads per key head]."""

    def __init__(self, call: AttentionCall) -> None:
        self.call = call
        self.batch, self.heads, self.queries, self.head_dim = call.query.shape
        self.kv_heads, self.keys = call.key.shape[1:3]
        self.group = self.heads // self.kv_heads if self.kv_heads else 0
        self.value_dim = call.value.shape[-1]
        self.dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32

    def split(self, tensor: Tensor, rows: slice) -> Tensor:
        """Return rows of a [B, Hq, Sq, ...] tensor as [B, H, G, R, ...], in the dtype of sums."""
        tile = tensor[:, :, rows].to(self.dtype)
        return tile.reshape(self.batch, self.kv_heads, self.group, *tile.shape[2:])

    def spread(self, tensor: Tensor, keys: slice) -> Tensor:
        """Return keys of a [B, H, Sk, ...] tensor as [B, H, 1, C, ...], in the dtype of sums."""
        return tensor[:, :, keys].to(self.dtype).unsqueeze(2)

    def query_tiles(self) -> Iterator[_QueryTile]:
        mask = self.call.mask
        height = _TILE if mask is None else mask.block_size[0]
        blocks = None if mask is None else BlockRows(mask, queries=self.queries, keys=self.keys)
        for index, start in enumerate(range(0, self.queries, height)):
            rows = slice(start, min(start + height, self.queries))
            visible = None
            if blocks is not None:
                seen = blocks.visible(index)
                heads = (1, 1) if seen.shape[1] == 1 else (self.kv_heads, self.group)
                visible = seen.reshape(seen.shape[0], *heads, *seen.shape[2:])
            yield _QueryTile(rows, visible)

    def key_tiles(self) -> Iterator[slice]:
        for start in range(0, self.keys, _TILE):
            yield slice(start, min(start + _TILE, self.keys))

    def scores(self, query: Tensor, key: Tensor, visible: Tensor | None) -> Tensor:
        scores = (query @ key.mT) * self.call.scale
        return scores if visible is None else torch.where(visible, scores, -math.inf)


def forward(call: AttentionCall) -> AttentionResult:
    """Compute attention/1 for calls without a score_mod."""
    problem = _Problem(call)
    query = call.query
    shape = (problem.batch, problem.heads, problem.queries)
    out = query.new_empty(*shape, problem.value_dim)
    lse = query.new_empty(shape, dtype=problem.dtype)
    max_scores = query.new_empty(shape, dtype=problem.dtype)
    for tile in problem.query_tiles():
        q = problem.split(query, tile.rows)
        highest = q.new_full(q.shape[:-1], -math.inf)
        total = q.new_zeros(q.shape[:-1])
        weighted = q.new_zeros(*q.shape[:-1], problem.value_dim)
        for keys in problem.key_tiles():
            visible = None if tile.visible is None else tile.visible[..., keys]
            scores = problem.scores(q, problem.spread(call.key, keys), visible)
            higher = torch.maximum(highest, scores.amax(-1))
            # A row that has seen no key yet keeps weight zero instead of exp(-inf + inf).
            offset = torch.where(higher == -math.inf, 0.0, higher)
            weights = (scores - offset.unsqueeze(-1)).exp()
            decay = (highest - offset).exp()
            total = total * decay + weights.sum(-1)
            weighted = weighted * decay.unsqueeze(-1) + _weigh(
                weights, problem.spread(call.value, keys), visible
            )
            highest = higher
        empty = highest == -math.inf
        rows = torch.where(empty.unsqueeze(-1), 0.0, weighted / total.unsqueeze(-1))
        out[:, :, tile.rows] = rows.flatten(1, 2).to(out.dtype)
        log_total = torch.where(empty, -math.inf, total.log() + highest)
        lse[:, :, tile.rows] = log_total.flatten(1, 2)
        max_scores[:, :, tile.rows] = highest.flatten(1, 2)
    return AttentionResult(out, lse if call.lse else None, max_scores if call.max_scores else None)


def backward(
    call: AttentionCall, out: Tensor, lse: Tensor, grad_out: Tensor, grad_lse: Tensor | None
) -> AttentionGradients:
    """Compute attention_backward/1 for calls without a score_mod."""
    problem = _Problem(call)
    grad_query = torch.empty_like(call.query, memory_format=torch.contiguous_format)
    grad_key = call.key.new_zeros(call.key.shape, dtype=problem.dtype)
    grad_value = call.value.new_zeros(call.value.shape, dtype=problem.dtype)
    for tile in problem.query_tiles():
        q = problem.split(call.query, tile.rows)
        grad = problem.split(grad_out, tile.rows)
        delta = (grad * problem.split(out, tile.rows)).sum(-1)
        if grad_lse is not None:
            delta = delta - problem.split(grad_lse, tile.rows)
        log_total = problem.split(lse, tile.rows)
        empty = (log_total == -math.inf).unsqueeze(-1)
        grad_q = torch.zeros_like(q)
        for keys in problem.key_tiles():
            visible = None if tile.visible is None else tile.visible[..., keys]
            key = problem.spread(call.key, keys)
            value = problem.spread(call.value, keys)
            scores = problem.scores(q, key, visible)
            weights = torch.where(empty, 0.0, (scores - log_total.unsqueeze(-1)).exp())
            if visible is not None:
                weights = torch.where(visible, weights, 0.0)
            across = None if visible is None else visible.mT
            grad_value[:, :, keys] += _weigh_rows(weights.mT, grad, across).sum(2)
            grad_scores = weights * (grad @ value.mT - delta.unsqueeze(-1)) * call.scale
            if visible is not None:
                grad_scores = torch.where(visible, grad_scores, 0.0)
                key = torch.where(key.isfinite(), key, 0.0)
            grad_q = grad_q + grad_scores @ key
            grad_key[:, :, keys] += _weigh_rows(grad_scores.mT, q, across).sum(2)
        grad_query[:, :, tile.rows] = grad_q.flatten(1, 2).to(grad_query.dtype)
    return AttentionGradients(
        grad_query, grad_key.to(call.key.dtype), grad_value.to(call.value.dtype)
    )


def _weigh_rows(weights: Tensor, rows: Tensor, visible: Tensor | None) -> Tensor:
    """Return weights @ rows, where a row that is not finite reaches only the keys that it sees."""
    if visible is None:
        return weights @ rows
    result = weights @ torch.where(rows.isfinite(), rows, 0.0)
    bad = visible.to(weights.dtype) @ (~rows.isfinite()).to(weights.dtype) > 0
    return torch.where(bad, math.nan, result)


def _weigh(weights: Tensor, value: Tensor, visible: Tensor | None) -> Tensor:
    """Return weights @ value, where a hidden value reaches no row even if it is not finite."""
    if visible is None:
        return weights @ value
    result = weights @ torch.where(value.isfinite(), value, 0.0)
    seen = visible.to(weights.dtype)
    above = seen @ (value == math.inf).to(weights.dtype) > 0
    below = seen @ (value == -math.inf).to(weights.dtype) > 0
    neither = (seen @ value.isnan().to(weights.dtype) > 0) | (above & below)
    result = torch.where(above, math.inf, result)
    result = torch.where(below, -math.inf, result)
    return torch.where(neither, math.nan, result)

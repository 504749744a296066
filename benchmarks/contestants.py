"""Who computes a case: this project and what stock torch offers for the same call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as stock

import torchyard_attention
from benchmarks.cases import Case

__all__ = ["OURS", "Attention", "contestants", "ruler"]

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
OURS = "torchyard"


def contestants(case: Case) -> dict[str, Attention]:
    """Return a callable per contestant; masks and compilation are prepared outside the timing."""
    _, q_heads, kv_heads, *_ = case.shape
    grouped = q_heads != kv_heads
    found: dict[str, Attention] = {OURS: _flex(case, torchyard_attention)}
    if case.score_mod is None:
        dense = _dense_mask(case)

        def sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, attn_mask=dense, enable_gqa=grouped
            )

        found["torch sdpa, dense mask" if dense is not None else "torch sdpa"] = sdpa
    # Compiled flex_attention has no backward pass on the CPU.
    if not case.training:
        found["torch flex, compiled"] = torch.compile(_flex(case, stock), dynamic=False)
    return found


def ruler(case: Case) -> Attention:
    """Return attention written out over all pairs, to be called on float64."""
    _, q_heads, kv_heads, q_length, kv_length, head_dim = case.shape
    head, row, column = torch.meshgrid(
        torch.arange(q_heads), torch.arange(q_length), torch.arange(kv_length), indexing="ij"
    )

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (x.repeat_interleave(q_heads // kv_heads, dim=1) for x in (key, value))
        outs = []
        for batch in range(query.shape[0]):
            scores = query[batch] @ key[batch].transpose(-1, -2) / math.sqrt(head_dim)
            if case.score_mod is not None:
                scores = case.score_mod(scores, batch, head, row, column)
            if case.mask_mod is not None:
                hidden = ~case.mask_mod(batch, head, row, column)
                scores = scores.masked_fill(hidden, -math.inf)
            outs.append(torch.softmax(scores, dim=-1) @ value[batch])
        return torch.stack(outs)

    return attend


def _flex(case: Case, module: Any) -> Attention:
    _, q_heads, kv_heads, q_length, kv_length, _ = case.shape
    mask = None
    if case.mask_mod is not None:
        mask = module.create_block_mask(
            case.mask_mod, None, None, q_length, kv_length, device="cpu"
        )

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = module.flex_attention(
            query,
            key,
            value,
            score_mod=case.score_mod,
            block_mask=mask,
            enable_gqa=q_heads != kv_heads,
        )
        assert isinstance(out, Tensor)
        return out

    return attend


def _dense_mask(case: Case) -> Tensor | None:
    if case.mask_mod is None:
        return None
    *_, q_length, kv_length, _ = case.shape
    return stock.create_mask(case.mask_mod, None, None, q_length, kv_length, device="cpu")

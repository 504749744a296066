"""Who computes a case: this project, and the ways that stock torch offers for the same call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as stock
from torch.nn.functional import scaled_dot_product_attention as sdpa

import torchyard_attention
from benchmarks.cases import Case

__all__ = ["OURS", "Attention", "contestants", "ruler"]

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
OURS = "torchyard"


def contestants(case: Case) -> dict[str, Attention]:
    """Return a callable per contestant; masks and compilation are prepared outside the timing."""
    found: dict[str, Attention] = {OURS: _flex(case, torchyard_attention)}
    bias = _additive_bias(case)
    if case.score_mod is None or bias is not None:
        found |= _sdpa(case, bias)
    # Compiled flex_attention has no backward pass on the CPU.
    if not case.training:
        # Eight earlier cases would otherwise push this one to torch's uncompiled path.
        torch._dynamo.reset()
        found["torch flex, compiled"] = torch.compile(_flex(case, stock), dynamic=False)
    return found


def ruler(case: Case) -> Attention:
    """Return attention written out over all pairs, to be called on float64."""
    _, q_heads, kv_heads, _, _, head_dim = case.shape
    head, row, column = _indices(case)

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


def _sdpa(case: Case, bias: Tensor | None) -> dict[str, Attention]:
    """Return every exact way to say the case to scaled_dot_product_attention.

    Which is fastest differs by shape and dtype (grouped heads served by ``enable_gqa`` can take
    nine times as long as the same heads folded into rows), so all of them compete.
    """
    _, q_heads, kv_heads, *_ = case.shape
    group = q_heads // kv_heads
    options: dict[str, Any] = {}
    if case.causal:
        options = {"is_causal": True}
    elif case.mask_mod is not None or bias is not None:
        options = {"attn_mask": _dense_mask(case, bias)}

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return sdpa(query, key, value, **options)

    def flagged(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return sdpa(query, key, value, enable_gqa=True, **options)

    def repeated(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        return sdpa(query, key, value, **options)

    def folded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch, _, length, head_dim = query.shape
        rows = query.reshape(batch, kv_heads, group * length, head_dim)
        return sdpa(rows, key, value).view(batch, q_heads, length, -1)

    if group == 1:
        return {"torch sdpa": plain}
    found: dict[str, Attention] = {
        "torch sdpa, enable_gqa": flagged,
        "torch sdpa, repeated kv": repeated,
    }
    if not options:
        found["torch sdpa, folded rows"] = folded
    return found


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


def _additive_bias(case: Case) -> Tensor | None:
    """Return the score_mod as a bias [Hq, Sq, Sk], if adding one is all that it does."""
    if case.score_mod is None:
        return None
    head, row, column = _indices(case)
    bias, moved = (
        case.score_mod(torch.full(head.shape, score), 0, head, row, column) for score in (0.0, 8.0)
    )
    return bias if torch.allclose(moved - bias, torch.tensor(8.0), atol=1e-3) else None


def _dense_mask(case: Case, bias: Tensor | None) -> Tensor:
    head, row, column = _indices(case)
    visible = torch.ones(head.shape, dtype=torch.bool)
    if case.mask_mod is not None:
        visible = case.mask_mod(0, head, row, column).expand(head.shape)
    if bias is None:
        return visible[:1]
    return bias.masked_fill(~visible, -math.inf).to(case.dtype)


def _indices(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    _, q_heads, _, q_length, kv_length, _ = case.shape
    head, row, column = torch.meshgrid(
        torch.arange(q_heads), torch.arange(q_length), torch.arange(kv_length), indexing="ij"
    )
    return head, row, column

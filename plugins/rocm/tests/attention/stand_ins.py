"""Functions with the libraries' parameters that compute what their documentation says.

Read from ROCm/aiter e4048607 of 2026-08-22 (aiter/ops/mha.py) and Dao-AILab/flash-attention
0251105a of 2026-08-15 (flash_attn/flash_attn_interface.py, csrc/flash_attn_ck/mha_fwd.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Attend", "Faults", "aiter_function", "flash_function"]

Attend = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Faults:
    """What a stand-in does otherwise than the library's documentation says.

    Attributes:
        causal_at_the_first: aligns the causal mask at the first row and key.
        scale_squared: multiplies scores by the scale twice.
        lse: changes the log-sum-exp.
        grouped_heads: query heads share key heads in turns, and not side by side.
    """

    causal_at_the_first: bool = False
    scale_squared: bool = False
    lse: Callable[[Tensor], Tensor] | None = None
    grouped_heads: bool = False


def _attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, faults: Faults
) -> tuple[Tensor, Tensor]:
    """Return out [B, S, H, V] and lse [B, H, S]; a causal mask is aligned at the last row."""
    group = q.shape[2] // k.shape[2]
    query = q.double().transpose(1, 2)
    repeat = (1, group, 1, 1)
    key, value = (
        x.transpose(1, 2).repeat(repeat)
        if faults.grouped_heads
        else x.transpose(1, 2).repeat_interleave(group, 1)
        for x in (k.double(), v.double())
    )
    scores = query @ key.mT * scale * (scale if faults.scale_squared else 1.0)
    if causal:
        rows, keys = scores.shape[-2:]
        shift = 0 if faults.causal_at_the_first else keys - rows
        hidden = torch.arange(keys) > torch.arange(rows)[:, None] + shift
        scores = scores.masked_fill(hidden, -math.inf)
    out = (scores.softmax(-1) @ value).transpose(1, 2).to(q.dtype)
    lse = scores.logsumexp(-1).float()
    return out, lse if faults.lse is None else faults.lse(lse)


def _asked(q: Tensor, k: Tensor, v: Tensor, others: dict[str, Any]) -> None:
    """Refuse what the stand-ins do not compute, and layouts that the libraries refuse."""
    assert all(value in neutral for value, *neutral in others.values()), others
    for tensor in (q, k, v):
        assert tensor.ndim == 4
        assert tensor.stride(-1) == 1
    assert k.shape[:3] == v.shape[:3]
    assert q.shape[0] == k.shape[0]
    assert q.shape[3] == k.shape[3]


def aiter_function(faults: Faults = Faults()) -> Callable[..., Any]:
    """Return aiter's flash_attn_func of 0.1.20.post1."""

    def flash_attn_func(
        q,
        k,
        v,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1, 0),
        bias=None,
        alibi_slopes=None,
        deterministic=True,
        return_lse=False,
        return_attn_probs=False,
        how_v3_bf16_cvt=1,
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_kv: torch.Tensor | None = None,
        sink_ptr: Tensor | None = None,
        num_splits: int = 0,
    ):
        others = {
            "dropout_p": (dropout_p, 0.0),
            "window_size": (window_size, (-1, -1, 0)),
            "bias": (bias, None),
            "return_attn_probs": (return_attn_probs, False),
        }
        _asked(q, k, v, others)
        scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
        out, lse = _attend(q, k, v, scale, causal, faults)
        return (out, lse) if return_lse else out

    return flash_attn_func


def flash_function(faults: Faults = Faults()) -> Callable[..., Any]:
    """Return flash_attn's flash_attn_func of 2.8.4."""

    def flash_attn_func(
        q,
        k,
        v,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        softcap=0.0,
        alibi_slopes=None,
        deterministic=False,
        return_attn_probs=False,
    ):
        others = {
            "dropout_p": (dropout_p, 0.0),
            "window_size": (window_size, (-1, -1)),
            "softcap": (softcap, 0.0),
        }
        _asked(q, k, v, others)
        assert q.shape[3] == v.shape[3]
        scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
        out, lse = _attend(q, k, v, scale, causal, faults)
        return (out, lse, None) if return_attn_probs else out

    return flash_attn_func

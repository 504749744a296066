"""What a call asks for: its request, from sizes, strides and dtypes alone."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention.contract import AttentionCall, AttentionRequest, MaskKind, ScoreKind

__all__ = ["lse_dtype", "request_of"]


def request_of(
    call: AttentionCall, *, causal: bool, grad: bool, deterministic: bool
) -> AttentionRequest:
    """Describe a call; reads sizes, strides and dtypes only."""
    query, key, value = call.query, call.key, call.value
    if call.mask is None:
        mask, block_size = MaskKind.NONE, (0, 0)
    else:
        mask = MaskKind.CAUSAL if causal else MaskKind.BLOCKS
        block_size = call.mask.block_size
    score = _score_kind(call)
    text: str = ""
    traits: tuple[tuple[str, int], ...] = ()
    if score is ScoreKind.POINTWISE:
        assert call.score_mod is not None
        text = call.score_mod.text
        traits = tuple((str(t.dtype)[6:], t.ndim) for t in call.score_mod.captured)
    known = (
        query.device.type,
        query.dtype,
        query.shape,
        key.shape,
        value.shape,
        score,
        mask,
        block_size,
        call.lse,
        call.max_scores,
        grad,
        _unit_stride(query) and _unit_stride(key) and _unit_stride(value),
        deterministic,
        text,
        traits,
        call.captured_grad if grad and any(call.captured_grad) else (),
        call.dropout is not None,
    )
    try:
        return _known_request(*known)
    except TypeError:  # sizes of fake tensors may be symbols, which have no hash
        return _request(*known)


def _request(
    device: str,
    dtype: torch.dtype,
    query: torch.Size,
    key: torch.Size,
    value: torch.Size,
    score: ScoreKind,
    mask: MaskKind,
    block_size: tuple[int, int],
    lse: bool,
    max_scores: bool,
    grad: bool,
    unit_stride: bool,
    deterministic: bool,
    score_text: str,
    score_captured: tuple[tuple[str, int], ...],
    captured_grad: tuple[bool, ...],
    dropout: bool,
) -> AttentionRequest:
    return AttentionRequest(
        device=device,
        dtype=str(dtype)[6:],
        batch=int(query[0]),
        q_heads=int(query[1]),
        kv_heads=int(key[1]),
        q_length=int(query[2]),
        kv_length=int(key[2]),
        head_dim=int(query[3]),
        value_dim=int(value[3]),
        score=score,
        mask=mask,
        block_size=block_size,
        lse=lse,
        max_scores=max_scores,
        grad=grad,
        unit_stride=unit_stride,
        deterministic=deterministic,
        score_text=score_text,
        score_captured=score_captured,
        captured_grad=captured_grad,
        dropout=dropout,
    )


# A model's layers make the same request; describing it anew costs as much as a short call.
_known_request = lru_cache(maxsize=1024)(_request)


def _unit_stride(tensor: Tensor) -> bool:
    return tensor.stride(3) == 1 or tensor.shape[3] == 1


def lse_dtype(query: Tensor) -> torch.dtype:
    """Return the dtype of the lse: float64 for float64 inputs, else float32."""
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def _score_kind(call: AttentionCall) -> ScoreKind:
    if call.score_mod is None:
        return ScoreKind.NONE
    assert isinstance(call.score_mod, TracedMod)
    pointwise = call.score_mod.pointwise(lse_dtype(call.query))
    return ScoreKind.POINTWISE if pointwise else ScoreKind.GENERAL

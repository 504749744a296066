"""Calls of few queries over many keys, each varying one thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.cases import MASKS
from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call

__all__ = ["CALLS", "PART", "alibi", "decode_call"]

# Keys of a part in these calls, so that few keys are several parts.
PART: Final = 64
_HALF: Final = {"dtype": torch.float16}
_BFLOAT16: Final = {"dtype": torch.bfloat16}
_BASE: Final = {
    "batch": 2,
    "q_heads": 4,
    "kv_heads": 2,
    "q_length": 3,
    "kv_length": 150,
    "head_dim": 16,
    "max_scores": True,
}
_MANY_HEADS: Final = {"batch": 1, "q_heads": 20, "kv_heads": 1, "q_length": 4, "score": "alibi"}
_SLOPES: Final = torch.linspace(0.05, 0.4, 20)
# Name -> arguments of make_call over those above; `mask` and `score` are names.
CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "one-query": {"q_length": 1},
    "one-query-half": {**_HALF, "q_length": 1, "kv_length": 290, "head_dim": 64},
    "one-query-bfloat16": {**_BFLOAT16, "q_length": 1, "score": "alibi"},
    "two-queries": {"q_length": 2, "kv_length": 65, "score": "alibi"},
    "three-queries-half": {**_HALF, "mask": "random", "block_size": (2, 32)},
    "four-queries": {"q_length": 4, "kv_length": 127, "value_dim": 24},
    "four-queries-bfloat16": {**_BFLOAT16, "q_length": 4, "mask": "random", "score": "alibi"},
    "eight-queries": {"q_length": 8, "kv_heads": 4, "head_dim": 72},
    "whole-parts": {"kv_length": 128},
    "one-key-head": {"kv_heads": 1, "q_length": 4, "score": "alibi"},
    "tiles-of-rows": _MANY_HEADS,
    "blocks-of-rows": {"mask": "random", "block_size": (2, 16), "score": "alibi"},
    "odd-blocks": {"mask": "random", "block_size": (3, 13), "q_length": 4},
    "blocks-of-tiles": {**_MANY_HEADS, "mask": "random", "block_size": (2, 32)},
    "wide-blocks": {"mask": "random", "block_size": (512, 4096)},
    "lists-of-each-head": {"mask": "per_head", "block_size": (16, 16), "score": "alibi"},
    "lists-of-each-batch": {"mask": "lengths", "block_size": (2, 32)},
    "hidden-parts": {"mask": "hidden-parts", "block_size": (4, 16), "q_length": 4},
    "hidden-parts-by-bits": {"mask": "hidden-parts", "block_size": (4, 512), "q_length": 4},
    "everything-as-partial": {"mask": "everything", "separate_full_blocks": False},
    "softcap": {"score": "softcap", "mask": "everything"},
    "hides-by-score": {"score": "hides"},
    "large-scores": {"scale": 60.0},
    "large-scores-half": {**_HALF, "scale": 60.0},
    "no-lse": {"lse": False, "max_scores": False},
}


def alibi(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    """Return scores that depend on heads by a captured tensor, on rows and on keys."""
    return s + _SLOPES[h] * (k - 3 * q)


def _softcap(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 3.0 * torch.tanh(s / 3.0)


def _hides(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.where((k > 70) & (k < 130 + q), s, -torch.inf)


def _hidden_parts(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    """Show the middle of the keys alone, and to the second row nothing."""
    rows, keys = torch.arange(q_length)[:, None], torch.arange(kv_length)
    return ((keys >= PART + 6) & (keys < 2 * PART - 3 + rows) & (rows != 1))[None, None]


def _lengths(batch: int, heads: int, q_length: int, kv_length: int) -> Tensor:
    """Show each batch more keys than the one before."""
    batches, rows = torch.arange(batch)[:, None, None, None], torch.arange(q_length)[:, None]
    return torch.arange(kv_length) < 40 + 90 * batches + rows


_SCORES: Final = {"alibi": alibi, "softcap": _softcap, "hides": _hides}
_MASKS: Final = {**MASKS, "hidden-parts": _hidden_parts, "lengths": _lengths}


def decode_call(name: str) -> AttentionCall:
    """Build a call."""
    sizes = {**_BASE, **CALLS[name]}
    mask, score = sizes.pop("mask", ""), sizes.pop("score", "")
    shape = (sizes[size] for size in ("batch", "q_heads", "q_length", "kv_length"))
    visible = _MASKS[mask](*shape) if mask else None
    return make_call(**sizes, visible=visible, score_mod=_SCORES[score] if score else None)

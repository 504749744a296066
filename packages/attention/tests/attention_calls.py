"""Small calls of attention, each varying one thing, for kernels that run slowly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import torch

from packages.attention.tests.score_programs import SCORES
from torchyard_attention.cases import MASKS, SCORE_MODS
from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call

__all__ = ["CALLS", "LAYOUTS", "call_of", "laid_out"]

LAYOUTS: Final = ("transposed", "strided", "expanded")

_HALF: Final = {"dtype": torch.float16}
_BRAIN: Final = {"dtype": torch.bfloat16}
_BASE: Final = {"batch": 1, "q_heads": 2, "q_length": 40, "kv_length": 50, "head_dim": 16}
# Name -> arguments of make_call over those above; `mask` and `score` are names.
CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "plain": {"batch": 2},
    "plain-half": _HALF,
    "causal": {"mask": "causal"},
    "causal-half": {**_HALF, "mask": "causal", "head_dim": 64},
    "head_dim-8": {"head_dim": 8, "mask": "causal"},
    "head_dim-72": {"head_dim": 72},
    "head_dim-256": {"head_dim": 256, **_HALF},
    "value_dim-24": {"value_dim": 24, "mask": "window"},
    "value_dim-less": {"head_dim": 48, "value_dim": 8},
    "lengths-1-70": {"q_length": 1, "kv_length": 70},
    "lengths-65-1": {"q_length": 65, "kv_length": 1, "score": "alibi"},
    "lengths-0-5": {"q_length": 0, "kv_length": 5},
    "lengths-5-0": {"q_length": 5, "kv_length": 0},
    "lengths-64-64": {"q_length": 64, "kv_length": 64, "mask": "causal"},
    "grouped-2": {"q_heads": 4, "kv_heads": 2, "mask": "window", "score": "alibi"},
    "grouped-1": {"q_heads": 4, "kv_heads": 1, "mask": "per_head"},
    "documents": {"batch": 2, "mask": "documents", "block_size": (16, 32)},
    "random": {"mask": "random", "block_size": (32, 16)},
    "odd-blocks": {"mask": "window", "block_size": (20, 13), "q_length": 50},
    "wide-blocks": {"mask": "window", "block_size": (512, 4096)},
    "per-batch-and-head": {
        "batch": 2,
        "q_heads": 3,
        "mask": "per_batch_and_head",
        "block_size": (16, 16),
    },
    "empty-rows": {"mask": "empty_rows", "block_size": (16, 16), "max_scores": True},
    "nothing": {"mask": "nothing", "max_scores": True},
    "everything": {"mask": "everything", "block_size": (16, 16)},
    "full-as-partial": {"mask": "everything", "separate_full_blocks": False},
    "max_scores": {"score": "softcap", "mask": "causal", "max_scores": True},
    "scale-negative": {"scale": -0.5, "mask": "causal"},
    "scale-0": {"scale": 0.0},
    "half-alibi": {**_HALF, "mask": "window", "score": "alibi"},
    "gate": {"score": "gate"},
    "gated-alibi": {"score": "gated_alibi", "mask": "causal"},
    "bfloat16-bias": {"score": "batch_bias_bfloat16", "batch": 2},
    "hides-by-score": {"score": "hides_by_score"},
    "ignores-score": {"score": "ignores_score"},
    "undefined-where-hidden": {"score": "undefined_where_hidden", "mask": "causal"},
    "relative-bias": {"score": "relative_bias", "q_heads": 4, "kv_heads": 2, "mask": "causal"},
    "learnable-bias": {"score": "learnable_bias", "q_heads": 4},
    "row-column": {"score": "row-column", "mask": "window"},
    "head-gate": {"score": "head-gate", "q_heads": 4, "kv_heads": 2},
    "relative-bias-t5": {"score": "relative_bias-t5", "q_heads": 4},
    "causal-bfloat16": {**_BRAIN, "mask": "causal", "head_dim": 64},
    "bfloat16-window": {**_BRAIN, "mask": "window"},
    "bfloat16-alibi": {**_BRAIN, "mask": "window", "score": "alibi"},
}


def call_of(name: str) -> AttentionCall:
    """Build a call."""
    sizes = {**_BASE, **CALLS[name]}
    mask, score = sizes.pop("mask", ""), sizes.pop("score", "")
    visible = None
    if mask:
        shape = (sizes["batch"], sizes["q_heads"], sizes["q_length"], sizes["kv_length"])
        visible = MASKS[mask](*shape)
    score_mod = None
    if score:
        score_mod = SCORE_MODS[score]() if score in SCORE_MODS else SCORES[score]
    return make_call(**sizes, visible=visible, score_mod=score_mod)


def laid_out(call: AttentionCall, layout: str) -> AttentionCall:
    """Return the call with the values of its tensors at other strides."""

    def one(tensor: torch.Tensor) -> torch.Tensor:
        if layout == "transposed":
            return tensor.transpose(1, 2).contiguous().transpose(1, 2)
        if layout == "strided":
            return torch.stack([tensor, tensor], dim=-1).flatten(-2)[..., ::2]
        return tensor[:, :1].expand_as(tensor)

    return replace(call, query=one(call.query), key=one(call.key), value=one(call.value))

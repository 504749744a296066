"""The masks and score_mods that are measured.

A score is a function of the case's parameters that returns a score_mod; its tensors are as large as
the longest case, so that a shorter one can use them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

__all__ = [
    "SLOPES",
    "TABLE",
    "ScoreMod",
    "alibi",
    "bias",
    "causal",
    "distance",
    "documents",
    "learnable_alibi",
    "relative_bias",
    "softcap",
    "window",
]

ScoreMod = Callable[..., Any]

_LONGEST: Final = 2048
_HEADS: Final = 8
SLOPES: Final = 2.0 ** -torch.arange(1.0, 1.0 + _HEADS)
TABLE: Final = torch.linspace(-1.0, 1.0, _HEADS * 2 * _LONGEST).view(_HEADS, 2 * _LONGEST)
_DISTANCES: Final = torch.linspace(-1.0, 1.0, 2 * _LONGEST)
_PAIRS: Final = torch.linspace(-1.0, 1.0, _LONGEST * _LONGEST).view(_LONGEST, _LONGEST)
_DOCUMENT: Final = torch.arange(_LONGEST) // 300


def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Hide what comes later."""
    return q_idx >= kv_idx


def window(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Show the last 256 keys."""
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 256)


def documents(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """Show the query's own document, of 300 tokens."""
    return _DOCUMENT[q_idx] == _DOCUMENT[kv_idx]


def distance() -> ScoreMod:
    """Lower a score by its distance."""
    return lambda score, b, h, q_idx, kv_idx: score - (q_idx - kv_idx) * 0.0625


def alibi() -> ScoreMod:
    """Lower a score by its distance times its head's slope."""
    return lambda score, b, h, q_idx, kv_idx: score + SLOPES[h] * (kv_idx - q_idx)


def learnable_alibi(slopes: Tensor) -> ScoreMod:
    """As :func:`alibi`, with slopes that get gradients."""
    return lambda score, b, h, q_idx, kv_idx: score + slopes[h] * (kv_idx - q_idx)


def softcap() -> ScoreMod:
    """Hold scores between -20 and 20."""
    return lambda score, b, h, q_idx, kv_idx: 20.0 * torch.tanh(score / 20.0)


def relative_bias(table: Tensor | None = None) -> ScoreMod:
    """Add an element of a table by distance; of a table [heads, distances] that gets gradients."""
    if table is not None:
        return lambda score, b, h, q_idx, kv_idx: score + table[h, q_idx - kv_idx + (_LONGEST - 1)]
    return lambda score, b, h, q_idx, kv_idx: score + _DISTANCES[q_idx - kv_idx + (_LONGEST - 1)]


def bias() -> ScoreMod:
    """Add an element of a table by query and key."""
    return lambda score, b, h, q_idx, kv_idx: score + _PAIRS[q_idx, kv_idx]

"""Soft capping: scores that cannot leave (-cap, cap)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchyard_attention._api import ScoreModFunction


def softcap(cap: float) -> ScoreModFunction:
    """Return a score_mod that computes cap * tanh(score / cap).

    Source: Gemma 2 (arXiv 2408.00118) section 2.
    """
    if not (cap > 0 and math.isfinite(cap)):
        raise ValueError(f"cap: expected a finite number above 0, got {cap}")

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return cap * torch.tanh(score / cap)

    return score_mod

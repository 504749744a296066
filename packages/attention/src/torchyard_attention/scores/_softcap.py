"""Soft capping: scores that cannot leave (-cap, cap)."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._api import ScoreModFunction


def softcap(cap: float) -> ScoreModFunction:
    """Return a score_mod that computes cap * tanh(score / cap).

    Source: Gemma 2 (arXiv 2408.00118) section 2.
    """
    cap = arguments.number("softcap", "cap", cap, above=0)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return cap * torch.tanh(score / cap)

    return score_mod

"""ALiBi: a penalty that grows with distance, by a slope per head."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention._api import ScoreModFunction


def alibi_slopes(heads: int, *, device: torch.device | str | None = None) -> Tensor:
    """Return the slopes of Train Short, Test Long (arXiv 2108.12409) section 3: float32 [heads].

    Powers of 2^(-8 / n) for n heads where n is a power of two; otherwise those of the next lower
    power, then every other one of the next higher.
    """
    if heads < 1:
        raise ValueError(f"heads: expected at least 1, got {heads}")
    whole = 1 << (heads.bit_length() - 1)
    exponents = [8.0 * (place + 1) / whole for place in range(whole)]
    exponents += [4.0 * (2 * place + 1) / whole for place in range(heads - whole)]
    return torch.tensor([2.0**-exponent for exponent in exponents], device=device)


def alibi(slopes: Tensor, *, symmetric: bool = False) -> ScoreModFunction:
    """Return a score_mod that adds slopes[h] * (kv_idx - q_idx).

    Args:
        slopes: floating point [Hq]; see :func:`alibi_slopes`.
        symmetric: subtract slopes[h] * abs(kv_idx - q_idx) instead, for attention to both sides.
    """
    if slopes.ndim != 1:
        raise ValueError(f"slopes: expected shape [Hq], got {list(slopes.shape)}")

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return score + slopes[h] * (kv_idx - q_idx)

    def symmetric_score_mod(
        score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return score - slopes[h] * torch.abs(kv_idx - q_idx)

    return symmetric_score_mod if symmetric else score_mod

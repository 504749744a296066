"""ALiBi: a penalty that grows with distance, by a slope per head."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._api import ScoreModFunction
from torchyard_attention._validation import floats

_MOST_HEADS: Final = 1 << 20


def alibi_slopes(heads: int, *, device: torch.device | str | None = None) -> Tensor:
    """Return the slopes of Train Short, Test Long (arXiv 2108.12409) section 3: float32 [heads].

    Powers of 2^(-8 / n) for n heads where n is a power of two; otherwise those of the next lower
    power, then every other one of the next higher.
    """
    of = "alibi_slopes"
    heads = arguments.integer(of, "heads", heads, least=1, most=_MOST_HEADS)
    if device is not None:
        device = arguments.device(of, "device", device)
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
    floats("alibi", "slopes", slopes, "[Hq]", (1,))
    symmetric = arguments.boolean("alibi", "symmetric", symmetric)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return score + slopes[h] * (kv_idx - q_idx)

    def symmetric_score_mod(
        score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return score - slopes[h] * torch.abs(kv_idx - q_idx)

    return symmetric_score_mod if symmetric else score_mod

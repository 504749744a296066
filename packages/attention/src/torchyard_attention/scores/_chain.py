"""One score_mod after the other."""

from __future__ import annotations

from torch import Tensor

from torchyard import arguments
from torchyard_attention._api import ScoreModFunction


def chain(*score_mods: ScoreModFunction) -> ScoreModFunction:
    """Return a score_mod that applies the given ones in order; none leaves the score."""
    for position, function in enumerate(score_mods):
        arguments.function(
            "chain",
            f"score_mods[{position}]",
            function,
            remedy="one of (score, b, h, q_idx, kv_idx) that returns a score",
        )

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        for function in score_mods:
            score = function(score, b, h, q_idx, kv_idx)
        return score

    return score_mod

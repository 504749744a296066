"""The attention as ``torchyard_attention`` spells it: a score_mod and a block mask."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import Decision
from torchyard_attention import BlockMask, create_block_mask, explain, flex_attention
from torchyard_attention.demo._ways import Attend, Slopes

ScoreMod = Callable[[Any, Any, Any, Any, Any], Any]


class Ours:
    """flex_attention for training, for the prompt, and for one query at a time.

    Args:
        slopes: the heads' slopes and the window.
    """

    name: Final = "torchyard flex_attention"

    def __init__(self, slopes: Slopes) -> None:
        self._slopes, self._window = slopes.heads, slopes.window
        self._mask = lru_cache(maxsize=8)(self._make_mask)

    def whole(self, length: int) -> Attend:
        """Return attention of a sequence to itself."""
        mask, alibi = self._mask(length), self._alibi()

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            out: Tensor = flex_attention(query, key, value, alibi, mask)
            return out

        return attend

    def one(self, position: int) -> Attend:
        """Return attention of one query to the cache; everything in the cache is visible."""
        alibi = self._alibi_of_slots(position)

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            out: Tensor = flex_attention(query, key, value, alibi)
            return out

        return attend

    def decisions(self, query: Tensor) -> dict[str, Decision]:
        """Return which implementation computes each part of a run, and why.

        Args:
            query: [B, H, S, D] as in training; its values do not matter.
        """
        length = query.shape[2]
        trained = query.detach().requires_grad_()
        mask, alibi = self._mask(length), self._alibi()
        cache = query.detach()[:1, :, : self._window]
        with torch.no_grad():
            decode = explain(cache[:, :, :1], cache, cache, self._alibi_of_slots(self._window))
        return {
            "training, forward": explain(trained, trained, trained, alibi, mask),
            "training, backward": explain(trained, trained, trained, alibi, mask, backward=True),
            "generation, one byte": decode,
        }

    def _make_mask(self, length: int) -> BlockMask:
        window = self._window

        def near(b: Any, h: Any, q_idx: Any, k_idx: Any) -> Any:
            return (q_idx >= k_idx) & (q_idx - k_idx < window)

        return create_block_mask(near, None, None, length, length, self._slopes.device)

    def _alibi(self) -> ScoreMod:
        slopes = self._slopes

        def alibi(score: Any, b: Any, h: Any, q_idx: Any, k_idx: Any) -> Any:
            return score - slopes[h] * (q_idx - k_idx)

        return alibi

    def _alibi_of_slots(self, position: int) -> ScoreMod:
        slopes, window = self._slopes, self._window
        # A tensor: a number would be part of the recorded program, and a new one at every step.
        newest = torch.tensor(position, device=slopes.device)

        def alibi(score: Any, b: Any, h: Any, q_idx: Any, slot: Any) -> Any:
            return score - slopes[h] * ((newest - slot) % window)

        return alibi

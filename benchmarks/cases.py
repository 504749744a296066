"""The calls that are measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["CASES", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """One call of flex_attention.

    Attributes:
        name: what is special about it.
        shape: (B, Hq, Hkv, Sq, Sk, D).
        dtype: of query, key and value.
        score_mod: as for flex_attention; None leaves the scores alone.
        mask_mod: as for create_block_mask; None hides nothing.
        training: whether the backward pass is measured too.
    """

    name: str
    shape: tuple[int, int, int, int, int, int]
    dtype: torch.dtype
    score_mod: Callable[..., Any] | None = None
    mask_mod: Callable[..., Any] | None = None
    training: bool = False

    def shortened(self, factor: int) -> Case:
        """Return the same call over sequences that are shorter by a factor."""
        batch, q_heads, kv_heads, q_length, kv_length, head_dim = self.shape
        lengths = max(1, q_length // factor), max(1, kv_length // factor)
        shape = (batch, q_heads, kv_heads, *lengths, head_dim)
        return Case(self.name, shape, self.dtype, self.score_mod, self.mask_mod, self.training)

    def inputs(self, dtype: torch.dtype, *, grad: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value: the same numbers for every dtype, rounded to the case's."""
        batch, q_heads, kv_heads, q_length, kv_length, head_dim = self.shape
        generator = torch.Generator().manual_seed(0)
        query, key, value = (
            torch.randn(batch, heads, length, head_dim, generator=generator)
            .to(self.dtype)
            .to(dtype)
            .requires_grad_(grad)
            for heads, length in ((q_heads, q_length), (kv_heads, kv_length), (kv_heads, kv_length))
        )
        return query, key, value


def _causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def _window(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 256)


def _distance(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score - (q_idx - kv_idx) * 0.0625


CASES: Final = (
    Case("full", (1, 8, 8, 1024, 1024, 64), torch.float32),
    Case("causal", (1, 8, 8, 2048, 2048, 64), torch.bfloat16, mask_mod=_causal),
    Case("causal grouped", (1, 8, 2, 2048, 2048, 64), torch.bfloat16, mask_mod=_causal),
    Case("window", (1, 4, 4, 4096, 4096, 64), torch.bfloat16, mask_mod=_window),
    Case("distance", (1, 8, 8, 1024, 1024, 64), torch.float32, score_mod=_distance),
    Case("decoding", (4, 32, 8, 1, 4096, 64), torch.bfloat16),
    Case("training", (1, 8, 8, 1024, 1024, 64), torch.float32, mask_mod=_causal, training=True),
)

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

    @property
    def causal(self) -> bool:
        """Whether the mask is exactly ``q >= k``."""
        return self.mask_mod is _causal

    def visible_pairs(self) -> int:
        """Count the visible (query, key) pairs of one head."""
        *_, q_length, kv_length, _ = self.shape
        if self.mask_mod is None:
            return q_length * kv_length
        row, column = torch.arange(q_length)[:, None], torch.arange(kv_length)
        return int(self.mask_mod(0, 0, row, column).sum())

    def flops(self) -> float:
        """Return the operations that the visible pairs need: two products, forward only."""
        batch, q_heads, _, _, _, head_dim = self.shape
        return 4.0 * batch * q_heads * self.visible_pairs() * head_dim

    def kv_bytes(self) -> float:
        """Return the bytes of key and value, which must be read at least once."""
        batch, _, kv_heads, _, kv_length, head_dim = self.shape
        return 2.0 * batch * kv_heads * kv_length * head_dim * self.dtype.itemsize

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


def _alibi() -> Callable[..., Any]:
    slopes = 2.0 ** -torch.arange(1.0, 9.0)
    return lambda score, b, h, q_idx, kv_idx: score + slopes[h] * (kv_idx - q_idx)


def _softcap(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return 20.0 * torch.tanh(score / 20.0)


def _relative_bias(length: int) -> Callable[..., Any]:
    table = torch.linspace(-1.0, 1.0, 2 * length)
    return lambda score, b, h, q_idx, kv_idx: score + table[q_idx - kv_idx + (length - 1)]


def _bias(length: int) -> Callable[..., Any]:
    bias = torch.linspace(-1.0, 1.0, length * length).view(length, length)
    return lambda score, b, h, q_idx, kv_idx: score + bias[q_idx, kv_idx]


def _documents(length: int) -> Callable[..., Any]:
    document = torch.arange(length) // 300

    def same_document(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return torch.where(document[q_idx] == document[kv_idx], score, -torch.inf)

    return same_document


_MODIFIED: Final = {
    "alibi": _alibi(),
    "softcap": _softcap,
    "relative bias": _relative_bias(2048),
    "bias[q,k]": _bias(2048),
    "documents": _documents(2048),
}
_LONG: Final = (1, 8, 8, 2048, 2048, 64)

CASES: Final = (
    Case("full float32", (1, 8, 8, 2048, 2048, 64), torch.float32),
    Case("full bfloat16", (1, 8, 8, 2048, 2048, 64), torch.bfloat16),
    Case("causal float32", (1, 8, 8, 2048, 2048, 64), torch.float32, mask_mod=_causal),
    Case("causal", (1, 8, 8, 2048, 2048, 64), torch.bfloat16, mask_mod=_causal),
    Case("causal d128", (1, 8, 8, 2048, 2048, 128), torch.bfloat16, mask_mod=_causal),
    Case("causal float16", (1, 8, 8, 2048, 2048, 64), torch.float16, mask_mod=_causal),
    Case("causal d128 float16", (1, 8, 8, 2048, 2048, 128), torch.float16, mask_mod=_causal),
    Case("causal short", (8, 8, 8, 128, 128, 64), torch.bfloat16, mask_mod=_causal),
    Case("causal grouped", (1, 8, 2, 2048, 2048, 64), torch.bfloat16, mask_mod=_causal),
    Case("window", (1, 4, 4, 4096, 4096, 64), torch.bfloat16, mask_mod=_window),
    Case("distance", (1, 8, 8, 1024, 1024, 64), torch.float32, score_mod=_distance),
    Case("decoding", (4, 32, 8, 1, 4096, 128), torch.bfloat16),
    Case("decoding float32", (4, 32, 8, 1, 4096, 128), torch.float32),
    Case("decoding float16", (4, 32, 8, 1, 4096, 128), torch.float16),
    *(
        Case(f"{name} {str(dtype)[6:]}", _LONG, dtype, score_mod=score_mod)
        for dtype in (torch.bfloat16, torch.float32)
        for name, score_mod in _MODIFIED.items()
    ),
    Case("training", (1, 8, 8, 1024, 1024, 64), torch.float32, mask_mod=_causal, training=True),
    *(
        Case(f"training {str(dtype)[6:]}", _LONG, dtype, mask_mod=_causal, training=True)
        for dtype in (torch.bfloat16, torch.float16)
    ),
)

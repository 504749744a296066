"""A call that is measured, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from benchmarks.measuring.modifiers import ScoreMod, causal

__all__ = ["Bar", "Case", "Part", "Rival"]


class Part(StrEnum):
    """What of a call is timed."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"


class Rival(StrEnum):
    """What a case is held against: the best of a kind of contestants, or the machine."""

    SDPA = "torch sdpa"
    FLEX = "torch flex"
    LIMIT = "the limit"


@dataclass(frozen=True, slots=True)
class Bar:
    """What a case is to reach.

    Attributes:
        rival: against what.
        at_least: times as fast as the rival, or the share of the limit.
    """

    rival: Rival
    at_least: float


@dataclass(frozen=True, slots=True)
class Case:
    """One call of flex_attention.

    Attributes:
        name: what is special about it.
        shape: (B, Hq, Hkv, Sq, Sk, D).
        dtype: of query, key and value.
        score: of the parameters, the score_mod; None leaves the scores alone.
        mask_mod: as for create_block_mask; None hides nothing.
        parameters: tensors that the score_mod captures and that get gradients.
        part: what is timed.
        bars: what is asked of it.
        compiled_flex: whether compiled flex_attention competes, which compiles for seconds.
    """

    name: str
    shape: tuple[int, int, int, int, int, int]
    dtype: torch.dtype
    score: Callable[..., ScoreMod] | None = None
    mask_mod: Callable[..., Any] | None = None
    parameters: tuple[Tensor, ...] = ()
    part: Part = Part.FORWARD
    bars: tuple[Bar, ...] = ()
    compiled_flex: bool = True

    @property
    def causal(self) -> bool:
        """Whether the mask is exactly ``q >= k``."""
        return self.mask_mod is causal

    @property
    def training(self) -> bool:
        """Whether gradients are computed."""
        return self.part is not Part.FORWARD

    @property
    def decoding(self) -> bool:
        """Whether memory limits the call: one query per head."""
        return self.shape[3] == 1 < self.shape[4]

    def score_mod(self, parameters: tuple[Tensor, ...]) -> ScoreMod | None:
        """Return the score_mod over some parameters."""
        return None if self.score is None else self.score(*parameters)

    def visible_pairs(self) -> int:
        """Count the visible (query, key) pairs of one head."""
        *_, q_length, kv_length, _ = self.shape
        if self.mask_mod is None:
            return q_length * kv_length
        row, column = torch.arange(q_length)[:, None], torch.arange(kv_length)
        return int(self.mask_mod(0, 0, row, column).sum())

    def flops(self) -> float:
        """Return the operations that the visible pairs need: two products forward, five back."""
        batch, q_heads, _, _, _, head_dim = self.shape
        products = {Part.FORWARD: 2, Part.BACKWARD: 5, Part.BOTH: 7}[self.part]
        return 2.0 * products * batch * q_heads * self.visible_pairs() * head_dim

    def kv_bytes(self) -> float:
        """Return the bytes of key and value, which must be read at least once."""
        batch, _, kv_heads, _, kv_length, head_dim = self.shape
        return 2.0 * batch * kv_heads * kv_length * head_dim * self.dtype.itemsize

    def shortened(self, factor: int) -> Case:
        """Return the same call over sequences that are shorter by a factor."""
        batch, q_heads, kv_heads, q_length, kv_length, head_dim = self.shape
        lengths = max(1, q_length // factor), max(1, kv_length // factor)
        return replace(self, shape=(batch, q_heads, kv_heads, *lengths, head_dim))

    def inputs(self, dtype: torch.dtype, *, grad: bool) -> tuple[Tensor, ...]:
        """Return query, key, value and the parameters.

        They are the same numbers for every dtype, rounded to the case's; parameters are float32,
        or float64 where the others are.
        """
        batch, q_heads, kv_heads, q_length, kv_length, head_dim = self.shape
        generator = torch.Generator().manual_seed(0)
        tensors = [
            torch.randn(batch, heads, length, head_dim, generator=generator)
            .to(self.dtype)
            .to(dtype)
            for heads, length in ((q_heads, q_length), (kv_heads, kv_length), (kv_heads, kv_length))
        ]
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        tensors += [parameter.detach().to(wide, copy=True) for parameter in self.parameters]
        return tuple(tensor.requires_grad_(grad) for tensor in tensors)

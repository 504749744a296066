"""Masks along the diagonal: a query sees keys near its own position.

Here and in the other masks, sizes are subtracted and the difference compared with 0: Dynamo (torch
2.13) cannot compare a recorded index with a number that it holds as a symbol, nor record a number
that it computed from symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._intervals import (
    BlockRows,
    Intervals,
    StructuredMask,
    Visibility,
    causal_visibility,
)
from torchyard_attention._validation import positions


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Causal:
    """Show a query its own position and those before: ``q >= k``."""

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return q_idx >= kv_idx

    def visibility(self, rows: BlockRows) -> Visibility:
        return causal_visibility(rows)


causal: Final[StructuredMask] = _Causal()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _SlidingWindow:
    size: int
    ahead: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (q_idx - kv_idx - self.size < 0) & (kv_idx - q_idx - self.ahead <= 0)

    def visibility(self, rows: BlockRows) -> Visibility:
        return Visibility.between(
            rows, lambda q: q - (self.size - 1), lambda q: q + (self.ahead + 1)
        )


def sliding_window(size: int, *, ahead: int = 0) -> StructuredMask:
    """Show a query the ``size`` positions that end with its own, and ``ahead`` after it.

    Causal by default; ``sliding_window(w, ahead=w - 1)`` looks as far to both sides.
    """
    size = positions("sliding_window", "size", size, least=1)
    ahead = positions("sliding_window", "ahead", ahead)
    return _SlidingWindow(size, ahead)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Dilated:
    reach: int
    dilation: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        back = q_idx - kv_idx
        return (back >= 0) & (back - self.reach <= 0) & (back % self.dilation == 0)

    def visibility(self, rows: BlockRows) -> Visibility:
        seen = Visibility.between(rows, lambda q: q - self.reach, lambda q: q + 1)
        if self.dilation == 1:
            return seen
        nothing = torch.zeros_like(rows.first)[:, None]
        return Visibility(seen.some, Intervals(nothing, nothing))


def dilated(size: int, dilation: int) -> StructuredMask:
    """Show a query ``size`` positions: its own, and back from it every ``dilation``-th."""
    size = positions("dilated", "size", size, least=1)
    dilation = positions("dilated", "dilation", dilation, least=1)
    if size * dilation >> 60:
        raise ValueError(f"dilated: size: expected a reach of less than 2**60, got {size} steps")
    return _Dilated((size - 1) * dilation, dilation)

"""Ways to compute the one attention that the demo's model uses.

Head h of H sees the last ``window`` positions, itself among them, and pays slope(h) for each
position of distance: softmax(q k / sqrt(D) - slope(h) * (q_idx - k_idx)) over
0 <= q_idx - k_idx < window. Source of the slopes: ALiBi (arXiv 2108.12409), section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from torchyard_attention.demo._settings import Size

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(query, key, value), each [B, H, S, D], to [B, H, Sq, D]."""


class Way(Protocol):
    """A way to compute it; the model is the same for all of them."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    def whole(self, length: int) -> Attend:
        """Return attention of a sequence to itself."""

    def one(self, position: int) -> Attend:
        """Return attention of the query at ``position`` to the cache's slots.

        Slot j of the keys, of which there are min(position + 1, window), holds the newest position
        p <= ``position`` with p % window == j.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """What every way needs to know.

    Attributes:
        window: how many positions a query sees.
        heads: float32 [H]: each head's slope.
    """

    window: int
    heads: Tensor

    @classmethod
    def of(cls, size: Size, device: torch.device) -> Slopes:
        """Return the slopes 2 ** (-8 h / H) for h in 1..H."""
        steps = torch.arange(1, size.heads + 1, dtype=torch.float32)
        return cls(size.window, torch.exp2(-8.0 * steps / size.heads).to(device))

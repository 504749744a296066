"""What recurrent layers return: named, and taken apart like torch's tuples."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["LstmOutput", "LstmState", "RecurrentOutput"]


class LstmState(NamedTuple):
    """The state between calls: hidden [layers * D, B, P], cell [layers * D, B, H]."""

    hidden: Tensor
    cell: Tensor


class LstmOutput(NamedTuple):
    """The output [T, B, D * P], or [B, T, D * P] with batch_first, and the state at the end."""

    output: Tensor
    state: LstmState


class RecurrentOutput(NamedTuple):
    """The output, as :class:`LstmOutput`, and the hidden state at the end [layers * D, B, H]."""

    output: Tensor
    state: Tensor

"""A call as the arguments of the ops, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from torchyard_kernels.recurrent.contract import CellWeights, RecurrentCall, RecurrentKind

__all__ = ["arguments_of", "call_of", "cells", "per_cell"]


def per_cell(weights: Sequence[Tensor], num_layers: int, bidirectional: bool) -> int:
    """Return the number of tensors of each layer and direction; 0 if it is not the same for all."""
    count = num_layers * (2 if bidirectional else 1)
    return 0 if count < 1 or len(weights) % count else len(weights) // count


def cells(
    weights: Sequence[Tensor], num_layers: int, bidirectional: bool
) -> tuple[CellWeights, ...]:
    """Return torch's flat list of weights by layer and direction."""
    size = per_cell(weights, num_layers, bidirectional)
    found = []
    for start in range(0, len(weights), size):
        part = weights[start : start + size]
        b_ih, b_hh = (part[2], part[3]) if size >= 4 else (None, None)
        w_hr = part[-1] if size % 2 else None
        found.append(CellWeights(part[0], part[1], b_ih, b_hh, w_hr))
    return tuple(found)


def arguments_of(call: RecurrentCall) -> list[Any]:
    """Return a call as the arguments that both ops begin with; :func:`call_of` is the way back."""
    return [
        call.input,
        call.hidden,
        call.cell,
        [weight for cell in call.weights for weight in cell if weight is not None],
        call.lengths,
        str(call.kind),
        call.num_layers,
        call.bidirectional,
    ]


def call_of(common: Sequence[Any], *, reserve: bool) -> RecurrentCall:
    """Return the call of the arguments that both ops begin with."""
    given, hidden, cell, weights, lengths, kind, num_layers, bidirectional = common
    return RecurrentCall(
        RecurrentKind(kind),
        given,
        hidden,
        cell,
        cells(weights, num_layers, bidirectional),
        num_layers,
        bidirectional,
        lengths,
        reserve,
    )

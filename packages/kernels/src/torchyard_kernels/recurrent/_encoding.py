"""A call as the arguments of the ops, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchyard_kernels.recurrent._validation import cells
from torchyard_kernels.recurrent.contract import RecurrentCall, RecurrentKind

__all__ = ["arguments_of", "call_of"]


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

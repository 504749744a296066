"""What a call asks for: its request, from sizes and dtypes alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    RecurrentRequest,
    gates,
)

__all__ = ["call_of", "cells", "per_cell", "request_of"]


def per_cell(weights: Sequence[Tensor], num_layers: int, bidirectional: bool) -> int:
    """Return how many tensors each layer and direction has; 0 where they do not come out even."""
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


def call_of(common: Sequence[Any], *, reserve: bool) -> RecurrentCall:
    """Return a call of an op's first arguments."""
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


def request_of(call: RecurrentCall, *, grad: bool, packed: bool = False) -> RecurrentRequest:
    """Describe a call."""
    first = call.weights[0]
    return _known_request(
        call.kind,
        call.input.device.type,
        call.input.dtype,
        call.input.shape,
        first.w_hh.shape,
        first.w_hr is not None,
        call.num_layers,
        call.bidirectional,
        first.b_ih is not None,
        call.lengths is not None,
        grad,
        call.reserve,
        packed,
        torch.are_deterministic_algorithms_enabled(),
    )


# A model's layers make the same request; describing it anew costs as much as a short call.
@lru_cache(maxsize=1024)
def _known_request(
    kind: RecurrentKind,
    device: str,
    dtype: torch.dtype,
    shape: torch.Size,
    w_hh: torch.Size,
    projected: bool,
    num_layers: int,
    bidirectional: bool,
    bias: bool,
    ragged: bool,
    grad: bool,
    reserve: bool,
    packed: bool,
    deterministic: bool,
) -> RecurrentRequest:
    return RecurrentRequest(
        device,
        str(dtype)[6:],
        kind,
        steps=shape[0],
        batch=shape[1],
        input_size=shape[2],
        hidden_size=w_hh[0] // gates(kind),
        proj_size=w_hh[1] if projected else 0,
        num_layers=num_layers,
        bidirectional=bidirectional,
        bias=bias,
        ragged=ragged,
        grad=grad,
        reserve=reserve,
        packed=packed,
        deterministic=deterministic,
    )

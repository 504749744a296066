"""Recurrent layers in their inputs' dtype, step by step: error bounds are measured with them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    RecurrentResult,
)

__all__ = ["naive_recurrent"]


class _Step(NamedTuple):
    hidden: Tensor
    cell: Tensor | None
    gates: tuple[Tensor, ...]


def naive_recurrent(call: RecurrentCall) -> RecurrentResult:
    """Compute a call, every product and sum in the inputs' dtype; differentiable."""
    steps, batch, _ = call.input.shape
    lengths = torch.full((batch,), steps) if call.lengths is None else call.lengths
    directions = 2 if call.bidirectional else 1
    values, hidden, cell, reserve = call.input, [], [], []
    for layer in range(call.num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            state, memory = call.hidden[index], None if call.cell is None else call.cell[index]
            at: list[Tensor] = [values[:0]] * steps
            kept: list[Tensor] = [values[:0]] * steps
            for t in range(steps) if direction == 0 else reversed(range(steps)):
                there = (t < lengths)[:, None]
                x = torch.where(there, values[t], 0)
                new = _step(call.kind, x, state, memory, call.weights[index])
                at[t] = torch.where(there, new.hidden, 0)
                kept[t] = torch.where(there, torch.cat((*new.gates, new.hidden), dim=1), 0)
                state = torch.where(there, new.hidden, state)
                if memory is not None and new.cell is not None:
                    memory = torch.where(there, new.cell, memory)
            outputs.append(torch.stack(at))
            reserve.append(torch.stack(kept))
            hidden.append(state)
            cell += [] if memory is None else [memory]
        values = torch.cat(outputs, dim=2)
    return RecurrentResult(
        values,
        torch.stack(hidden),
        torch.stack(cell) if cell else None,
        torch.stack(reserve) if call.reserve else None,
    )


def _step(
    kind: RecurrentKind, x: Tensor, hidden: Tensor, cell: Tensor | None, weights: CellWeights
) -> _Step:
    given = linear(x, weights.w_ih, weights.b_ih)
    kept = linear(hidden, weights.w_hh, weights.b_hh)
    match kind:
        case RecurrentKind.LSTM:
            assert cell is not None
            i, f, g, o = (given + kept).chunk(4, dim=1)
            i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
            cell = f * cell + i * g
            out = o * torch.tanh(cell)
            if weights.w_hr is not None:
                out = linear(out, weights.w_hr)
            return _Step(out, cell, (i, f, g, o, cell))
        case RecurrentKind.GRU:
            (r_x, z_x, n_x), (r_h, z_h, n_h) = given.chunk(3, dim=1), kept.chunk(3, dim=1)
            r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
            n = torch.tanh(n_x + r * n_h)
            return _Step((1 - z) * n + z * hidden, None, (r, z, n, n_h))
        case RecurrentKind.RNN_TANH:
            return _Step(torch.tanh(given + kept), None, ())
        case RecurrentKind.RNN_RELU:
            return _Step(torch.relu(given + kept), None, ())

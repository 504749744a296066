"""kernels.reference: the equations, one step after the other, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels.recurrent._cells import State, step
from torchyard_kernels.recurrent.contract import RecurrentCall, RecurrentResult

__all__ = ["Reference", "exact_forward"]


def exact_forward(call: RecurrentCall) -> RecurrentResult:
    """Return the outputs in float64, rounded nowhere; differentiable."""
    steps, batch, _ = call.input.shape
    directions = 2 if call.bidirectional else 1
    lengths = call.lengths
    if lengths is None:
        lengths = torch.full((batch,), steps, dtype=torch.int64)
    lengths = lengths.to(call.input.device)
    values = call.input.double()
    hidden, cell = [], []
    for layer in range(call.num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = call.weights[index].to(torch.float64)
            state = State(
                call.hidden[index].double(),
                None if call.cell is None else call.cell[index].double(),
            )
            order = range(steps) if direction == 0 else range(steps - 1, -1, -1)
            at: list[Tensor | None] = [None] * steps
            for t in order:
                there = (t < lengths)[:, None]
                x = torch.where(there, values[t], 0)
                new = step(call.kind, x, state, weights)
                kept = torch.where(there, new.hidden, state.hidden)
                if new.cell is None or state.cell is None:
                    state = State(kept, None)
                else:
                    state = State(kept, torch.where(there, new.cell, state.cell))
                at[t] = torch.where(there, new.hidden, 0)
            outputs.append(torch.stack([item for item in at if item is not None]))
            hidden.append(state.hidden)
            if state.cell is not None:
                cell.append(state.cell)
        values = torch.cat(outputs, dim=2)
    return RecurrentResult(values, torch.stack(hidden), torch.stack(cell) if cell else None)


class Reference:
    """The reference as an implementation: float64 within, the input's dtype outside."""

    differentiable = True

    def __call__(self, call: RecurrentCall) -> RecurrentResult:
        """Compute the outputs."""
        exact = exact_forward(call)
        dtype = call.input.dtype
        return RecurrentResult(
            exact.output.to(dtype),
            exact.hidden.to(dtype),
            None if exact.cell is None else exact.cell.to(dtype),
        )

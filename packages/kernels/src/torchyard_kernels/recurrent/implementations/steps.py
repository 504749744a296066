"""kernels.steps: every call of the contract, on any device, in torch operations step by step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    RecurrentResult,
)

__all__ = ["accumulated", "steps_forward", "visible"]


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of gates and sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def visible(call: RecurrentCall) -> Tensor | None:
    """Return where sequences have steps, bool [T, B, 1]; None where all have all."""
    if call.lengths is None:
        return None
    lengths = call.lengths.to(call.input.device)
    steps = torch.arange(call.input.shape[0], device=lengths.device)
    return (steps[:, None] < lengths)[:, :, None]


def steps_forward(call: RecurrentCall) -> RecurrentResult:
    """Compute the outputs: one product for all inputs of a layer, then one per step."""
    dtype, wide = call.input.dtype, accumulated(call.input.dtype)
    directions = 2 if call.bidirectional else 1
    there = visible(call)
    values = call.input
    hidden, cell, reserve = [], [], []
    for layer in range(call.num_layers):
        outputs = []
        x = values.to(wide)
        for direction in range(directions):
            index = layer * directions + direction
            weights = call.weights[index].to(wide)
            bias = weights.b_ih
            if weights.b_ih is not None and call.kind is not RecurrentKind.GRU:
                assert weights.b_hh is not None
                bias = weights.b_ih + weights.b_hh
            run = _Run(call, weights, linear(x, weights.w_ih, bias), there, index)
            run.through(reverse=direction == 1)
            outputs.append(torch.stack(run.outputs))
            hidden.append(run.hidden)
            cell.append(run.cell)
            if call.reserve:
                reserve.append(torch.stack(run.reserve))
        values = torch.cat(outputs, dim=2).to(dtype)
    return RecurrentResult(
        values,
        torch.stack(hidden).to(dtype),
        None if call.cell is None else torch.stack([c for c in cell if c is not None]).to(dtype),
        torch.stack(reserve) if call.reserve else None,
    )


class _Run:
    """One layer and direction.

    Args:
        call: the call.
        weights: the layer's, in the dtype of sums.
        inputs: what inputs and biases add to the gates, [T, B, G * H].
        there: as :func:`visible`.
        index: of the layer and direction.
    """

    def __init__(
        self,
        call: RecurrentCall,
        weights: CellWeights,
        inputs: Tensor,
        there: Tensor | None,
        index: int,
    ) -> None:
        self._call = call
        self._weights = weights
        self._inputs = inputs
        self._there = there
        self.hidden = call.hidden[index].to(inputs.dtype)
        self.cell = None if call.cell is None else call.cell[index].to(inputs.dtype)
        nothing = inputs.new_empty(0)
        self.outputs = [nothing] * inputs.shape[0]
        self.reserve = [nothing] * (inputs.shape[0] if call.reserve else 0)

    def through(self, *, reverse: bool) -> None:
        """Take all steps."""
        steps = range(self._inputs.shape[0])
        for t in reversed(steps) if reverse else steps:
            hidden, cell, gates = self._step(self._inputs[t])
            # The next step reads the output, which is rounded, as the contract says.
            hidden = hidden.to(self._call.input.dtype).to(hidden.dtype)
            output, columns = hidden, (*gates, hidden)
            if self._there is not None:
                there = self._there[t]
                output = torch.where(there, hidden, 0)
                if self.reserve:
                    columns = tuple(torch.where(there, item, 0) for item in columns)
                hidden = torch.where(there, hidden, self.hidden)
                if cell is not None and self.cell is not None:
                    cell = torch.where(there, cell, self.cell)
            self.outputs[t] = output
            if self.reserve:
                self.reserve[t] = torch.cat(columns, dim=1)
            self.hidden, self.cell = hidden, cell

    def _step(self, inputs: Tensor) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
        """Return the hidden state, the cell state, and the reserve's columns before hidden."""
        kind, weights = self._call.kind, self._weights
        if kind is RecurrentKind.LSTM:
            assert self.cell is not None
            i, f, g, o = (inputs + linear(self.hidden, weights.w_hh)).chunk(4, dim=1)
            i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
            cell = f * self.cell + i * g
            hidden = o * torch.tanh(cell)
            if weights.w_hr is not None:
                hidden = linear(hidden, weights.w_hr)
            return hidden, cell, (i, f, g, o, cell)
        if kind is RecurrentKind.GRU:
            r_x, z_x, n_x = inputs.chunk(3, dim=1)
            r_h, z_h, n_h = linear(self.hidden, weights.w_hh, weights.b_hh).chunk(3, dim=1)
            r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
            n = torch.tanh(n_x + r * n_h)
            return n + z * (self.hidden - n), None, (r, z, n, n_h)
        summed = inputs + linear(self.hidden, weights.w_hh)
        activation = torch.tanh if kind is RecurrentKind.RNN_TANH else torch.relu
        return activation(summed), None, ()

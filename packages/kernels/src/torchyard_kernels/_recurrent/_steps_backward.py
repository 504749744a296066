"""kernels.steps, backward: gradients from the reserve, step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels._recurrent._steps import accumulated, visible
from torchyard_kernels.contracts.recurrent import (
    CellWeights,
    RecurrentCall,
    RecurrentGradients,
    RecurrentKind,
    gates,
)

__all__ = ["steps_backward"]


def steps_backward(
    call: RecurrentCall,
    reserve: Tensor,
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
) -> RecurrentGradients:
    """Compute the gradients: the products with weights per step, all others once per layer."""
    wide = accumulated(call.input.dtype)
    directions = 2 if call.bidirectional else 1
    outputs = call.hidden.shape[2]
    there = visible(call)
    steps, batch, _ = call.input.shape
    if grad_output is None:
        above = reserve.new_zeros((steps, batch, directions * outputs))
    else:
        above = grad_output.to(wide)
    hidden: list[Tensor] = []
    cell: list[Tensor] = []
    weights: list[CellWeights] = []
    for layer in reversed(range(call.num_layers)):
        first = layer * directions
        if layer == 0:
            # What lies beyond a sequence's end may be NaN, and zero times NaN is not zero.
            values = call.input if there is None else torch.where(there, call.input, 0)
            values = values.to(wide)
        else:
            below = reserve[first - directions : first, :, :, -outputs:]
            values = torch.cat(below.unbind(0), dim=2)
        found = []
        for direction in range(directions):
            run = _Run(call, reserve, values, there, first + direction, reverse=direction == 1)
            span = slice(direction * outputs, (direction + 1) * outputs)
            found.append(
                run.gradients(
                    above[:, :, span],
                    None if grad_hidden is None else grad_hidden[first + direction],
                    None if grad_cell is None else grad_cell[first + direction],
                )
            )
        above = torch.stack([item.input for item in found]).sum(0)
        hidden[:0] = [item.hidden for item in found]
        cell[:0] = [item.cell for item in found if item.cell is not None]
        weights[:0] = [item.weights[0] for item in found]
    dtype = call.input.dtype
    return RecurrentGradients(
        above.to(dtype),
        torch.stack(hidden).to(dtype),
        torch.stack(cell).to(dtype) if cell else None,
        tuple(one.to(dtype) for one in weights),
    )


class _Run:
    """One layer and direction.

    Args:
        call: the call.
        reserve: the whole reserve.
        values: the layer's input, [T, B, I of the layer], 0 where there is no step.
        there: as ``visible``.
        index: of the layer and direction.
        reverse: whether the steps go from last to first.
    """

    def __init__(
        self,
        call: RecurrentCall,
        reserve: Tensor,
        values: Tensor,
        there: Tensor | None,
        index: int,
        *,
        reverse: bool,
    ) -> None:
        self._kind = call.kind
        self._values = values
        self._there = there
        self._reverse = reverse
        self._weights = call.weights[index].to(reserve.dtype)
        size = self._weights.w_hh.shape[0] // gates(call.kind)
        kept = reserve[index]
        self._columns = torch.split(kept, size, dim=2)
        start = call.hidden[index].to(reserve.dtype)
        outputs = start.shape[1]
        self._before = self._shifted(kept[:, :, -outputs:], start)
        self._cells_before: Tensor | None = None
        if call.cell is not None:
            self._cells_before = self._shifted(self._columns[4], call.cell[index].to(reserve.dtype))

    def _shifted(self, kept: Tensor, start: Tensor) -> Tensor:
        """Return the state before each step, [T, B, size]."""
        if not self._reverse:
            # Beyond a sequence's end this is not the state; no gradient comes from there.
            return torch.cat([start[None], kept[:-1]])
        after = torch.cat([kept[1:], start[None]])
        if self._there is None:
            return after
        later = torch.cat([self._there[1:], torch.zeros_like(self._there[:1])])
        return torch.where(later, after, start)

    def gradients(
        self, grad_output: Tensor, grad_hidden: Tensor | None, grad_cell: Tensor | None
    ) -> RecurrentGradients:
        """Return gradients of the layer's input, states and weights, in the dtype of sums."""
        weights, wide = self._weights, self._before.dtype
        hidden = torch.zeros_like(self._before[0]) if grad_hidden is None else grad_hidden.to(wide)
        cell = self._cells_before
        if cell is not None:
            cell = torch.zeros_like(cell[0]) if grad_cell is None else grad_cell.to(wide)
        steps = range(self._before.shape[0])
        recurrent = [hidden] * len(steps)
        inputs = [hidden] * len(steps)
        projected = [hidden] * len(steps)
        for t in steps if self._reverse else reversed(steps):
            total = hidden + grad_output[t]
            at_inputs, at_recurrent, kept_hidden, new_cell = self._step(t, total, cell)
            if self._there is not None:
                there = self._there[t]
                at_inputs = torch.where(there, at_inputs, 0)
                at_recurrent = torch.where(there, at_recurrent, 0)
                kept_hidden = torch.where(there, kept_hidden, hidden)
                total = torch.where(there, total, 0)
                if new_cell is not None and cell is not None:
                    new_cell = torch.where(there, new_cell, cell)
            inputs[t], recurrent[t], projected[t] = at_inputs, at_recurrent, total
            hidden = torch.addmm(kept_hidden, at_recurrent, weights.w_hh)
            cell = new_cell
        to_inputs, to_recurrent = torch.cat(inputs), torch.cat(recurrent)
        w_hr = None
        if weights.w_hr is not None:
            o, c = self._columns[3], self._columns[4]
            w_hr = torch.cat(projected).t() @ (o * torch.tanh(c)).flatten(0, 1)
        biased = weights.b_ih is not None
        own = CellWeights(
            to_inputs.t() @ self._values.flatten(0, 1),
            to_recurrent.t() @ self._before.flatten(0, 1),
            to_inputs.sum(0) if biased else None,
            to_recurrent.sum(0) if biased else None,
            w_hr,
        )
        values = (to_inputs @ weights.w_ih).view(self._values.shape)
        return RecurrentGradients(values, hidden, cell, (own,))

    def _step(
        self, t: int, grad: Tensor, grad_cell: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return gradients at the sums of input and recurrent products, and of the old states.

        Of the old hidden state without what comes through the recurrent product.
        """
        columns = tuple(column[t] for column in self._columns)
        if self._kind is RecurrentKind.LSTM:
            assert self._cells_before is not None
            assert grad_cell is not None
            i, f, g, o, c = columns[:5]
            kept = torch.zeros_like(grad)
            if self._weights.w_hr is not None:
                grad = grad @ self._weights.w_hr
            squashed = torch.tanh(c)
            grad_cell = grad_cell + grad * o * (1 - squashed * squashed)
            sums = torch.cat(
                [
                    grad_cell * g * i * (1 - i),
                    grad_cell * self._cells_before[t] * f * (1 - f),
                    grad_cell * i * (1 - g * g),
                    grad * squashed * o * (1 - o),
                ],
                dim=1,
            )
            return sums, sums, kept, grad_cell * f
        if self._kind is RecurrentKind.GRU:
            r, z, n, n_h = columns[:4]
            at_n = grad * (1 - z) * (1 - n * n)
            at_r = at_n * n_h * r * (1 - r)
            at_z = grad * (self._before[t] - n) * z * (1 - z)
            return (
                torch.cat([at_r, at_z, at_n], dim=1),
                torch.cat([at_r, at_z, at_n * r], dim=1),
                grad * z,
                None,
            )
        (h,) = columns
        slope = 1 - h * h if self._kind is RecurrentKind.RNN_TANH else (h > 0).to(h.dtype)
        sums = grad * slope
        return sums, sums, torch.zeros_like(grad), None

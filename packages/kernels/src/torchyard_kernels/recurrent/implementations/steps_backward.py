"""kernels.steps, backward: gradients from the reserve, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentGradients,
    RecurrentKind,
    gates,
)
from torchyard_kernels.recurrent.implementations.steps import accumulated, visible

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
            # The input after a sequence's end may be NaN, and zero times NaN is not zero.
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
        self._values = values
        self._there = there
        self._reverse = reverse
        self._weights = call.weights[index].to(reserve.dtype)
        self._narrow = _products_dtype(call.input.dtype)
        kept = reserve[index]
        start = call.hidden[index].to(reserve.dtype)
        self._before = self._shifted(kept[:, :, -start.shape[1] :], start)
        size = self._weights.w_hh.shape[0] // gates(call.kind)
        columns = torch.split(kept, size, dim=2)
        if call.cell is None:
            self._slopes = _slopes(call.kind, columns, self._before)
        else:
            cells = self._shifted(columns[4], call.cell[index].to(reserve.dtype))
            self._slopes = _lstm_slopes(columns, cells)
        if there is not None:
            self._slopes = self._slopes.where(there)

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
        weights, slopes, wide = self._weights, self._slopes, self._before.dtype
        if self._there is not None:
            grad_output = torch.where(self._there, grad_output, 0)
        hidden = torch.zeros_like(self._before[0]) if grad_hidden is None else grad_hidden.to(wide)
        cell: Tensor | None = None
        if slopes.forget is not None:
            cell = torch.zeros_like(slopes.forget[0])
            cell = cell if grad_cell is None else grad_cell.to(wide)
        steps = range(self._before.shape[0])
        totals = torch.empty_like(self._before)
        sums = torch.empty_like(slopes.recurrent)
        for t in steps if self._reverse else reversed(steps):
            total = torch.add(hidden, grad_output[t], out=totals[t])
            grad = total if weights.w_hr is None else total @ weights.w_hr
            if cell is None:
                parts = torch.mul(grad[:, None], slopes.recurrent[t], out=sums[t])
            else:
                assert slopes.cell is not None
                assert slopes.forget is not None
                cell = torch.addcmul(cell, grad, slopes.cell[t])
                # The first three gates act on the cell state, the fourth on the hidden one.
                acting = torch.stack([cell, cell, cell, grad], dim=1)
                parts = torch.mul(acting, slopes.recurrent[t], out=sums[t])
                cell = cell * slopes.forget[t]
            hidden = parts.flatten(1) @ weights.w_hh
            if slopes.previous is not None:
                hidden = hidden.addcmul_(total, slopes.previous[t])
        to_recurrent = to_inputs = sums.flatten(0, 1).flatten(1)
        if slopes.inputs is not None:
            to_inputs = (totals[:, :, None] * slopes.inputs).flatten(0, 1).flatten(1)
        own = self._weight_gradients(to_inputs, to_recurrent, totals)
        values = self._product(to_inputs, weights.w_ih).view(self._values.shape)
        return RecurrentGradients(values, hidden, cell, (own,))

    def _weight_gradients(
        self, to_inputs: Tensor, to_recurrent: Tensor, total: Tensor
    ) -> CellWeights:
        biased = self._weights.b_ih is not None
        w_hr = None
        if self._slopes.unprojected is not None and self._weights.w_hr is not None:
            if self._there is not None:
                total = torch.where(self._there, total, 0)
            w_hr = self._product(total.flatten(0, 1).t(), self._slopes.unprojected.flatten(0, 1))
        return CellWeights(
            self._product(to_inputs.t(), self._values.flatten(0, 1)),
            self._product(to_recurrent.t(), self._before.flatten(0, 1)),
            to_inputs.sum(0) if biased else None,
            to_recurrent.sum(0) if biased else None,
            w_hr,
        )

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        return (left.to(self._narrow) @ right.to(self._narrow)).to(self._before.dtype)


def _products_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the factors of the products over all steps; their sums are wider.

    bfloat16 has float32's range, so that a gradient loses no more in it than it will as a result;
    in float16 small gradients would vanish.
    """
    return dtype if dtype == torch.bfloat16 else accumulated(dtype)


@dataclass(frozen=True, slots=True)
class _Slopes:
    """What a step's gradients are multiplied with, for all steps at once.

    Attributes:
        recurrent: from hidden (an LSTM: three times from the cell state, then from hidden) to the
            sums of gates that the recurrent product joins, [T, B, G, H].
        inputs: likewise for those of the inputs' product, where they differ.
        previous: from hidden to the previous hidden state, without the recurrent product,
            [T, B, 1 or H].
        cell: of an LSTM, from hidden to the cell state. forget: to the cell state before.
        unprojected: of an LSTM, what the projection multiplies.
    """

    recurrent: Tensor
    inputs: Tensor | None = None
    previous: Tensor | None = None
    cell: Tensor | None = None
    forget: Tensor | None = None
    unprojected: Tensor | None = None

    def where(self, there: Tensor) -> _Slopes:
        """Return slopes that pass states through where there is no step."""
        none = ~there

        def only(slope: Tensor) -> Tensor:
            shaped = there if slope.ndim == there.ndim else there[..., None]
            return torch.where(shaped, slope, 0)

        previous = none.to(self.recurrent.dtype) if self.previous is None else self.previous
        return _Slopes(
            only(self.recurrent),
            None if self.inputs is None else only(self.inputs),
            torch.where(there, previous, 1),
            None if self.cell is None else only(self.cell),
            None if self.forget is None else torch.where(there, self.forget, 1),
            self.unprojected,
        )


def _lstm_slopes(columns: Sequence[Tensor], before: Tensor) -> _Slopes:
    i, f, g, o, c = columns[:5]
    squashed = torch.tanh(c)
    to_gates = [
        g * i * (1 - i),
        before * f * (1 - f),
        i * (1 - g * g),
        squashed * o * (1 - o),
    ]
    return _Slopes(
        torch.stack(to_gates, dim=2),
        cell=o * (1 - squashed * squashed),
        forget=f,
        unprojected=o * squashed,
    )


def _slopes(kind: RecurrentKind, columns: Sequence[Tensor], before: Tensor) -> _Slopes:
    if kind is RecurrentKind.GRU:
        r, z, n, n_h = columns[:4]
        to_n = (1 - z) * (1 - n * n)
        to_r, to_z = to_n * n_h * r * (1 - r), (before - n) * z * (1 - z)
        return _Slopes(
            torch.stack([to_r, to_z, to_n * r], dim=2),
            inputs=torch.stack([to_r, to_z, to_n], dim=2),
            previous=z,
        )
    (h,) = columns
    slope = 1 - h * h if kind is RecurrentKind.RNN_TANH else (h > 0).to(h.dtype)
    return _Slopes(slope[:, :, None])

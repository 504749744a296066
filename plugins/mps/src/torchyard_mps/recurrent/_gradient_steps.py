"""The gradients of one layer and direction: launches step by step, then products over all steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import LinearCall
from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentGradients,
    RecurrentKind,
    gates,
)
from torchyard_mps._launch import Launch
from torchyard_mps.linear import product
from torchyard_mps.recurrent._source import source_of

__all__ = ["GradientSteps"]

# As in metal/recurrent/gradient.metal.
_ROWS: Final = 8
_COLUMNS: Final = 32
_THREADS: Final = 128


class GradientSteps:
    """The steps of one layer and direction, from the one that was taken last.

    Args:
        call: the call.
        index: of the layer and direction.
        reserve: float32 [T, B, columns], of the layer and direction.
        grad_output: float32 [T, B, P], any strides; None: 0.
        grad_hidden: [B, P]. grad_cell: [B, H]. None: 0.
        lengths: int32 [B] on the device; None: all sequences have all steps.
    """

    def __init__(
        self,
        call: RecurrentCall,
        index: int,
        reserve: Tensor,
        grad_output: Tensor | None,
        grad_hidden: Tensor | None,
        grad_cell: Tensor | None,
        lengths: Tensor | None,
    ) -> None:
        weights = self._weights = call.weights[index]
        self._reserve, self._grad_output = reserve, grad_output
        steps, batch, kept = reserve.shape
        outputs, count = call.hidden.shape[2], gates(call.kind)
        units = weights.w_hh.shape[0] // count
        # Where the kernels read nothing, and write nothing.
        self._none = reserve.new_zeros(1)
        self._hidden = call.hidden[index].float().contiguous()
        self._cell = self._none if call.cell is None else call.cell[index].float().contiguous()
        self._passed = _copied(grad_hidden, self._hidden)
        self._grad_cell = self._none if call.cell is None else _copied(grad_cell, self._cell)
        self._sums = reserve.new_empty((steps, batch, count * units))
        self._inputs = (
            torch.empty_like(self._sums) if call.kind is RecurrentKind.GRU else self._sums
        )
        self._before = reserve.new_empty((steps, batch, outputs))
        self._total = self._unprojected = None
        if weights.w_hr is not None:
            self._total = torch.empty_like(self._before)
            self._unprojected = reserve.new_empty((steps, batch, units))
        self._lengths = torch.zeros(1, dtype=torch.int32, device=reserve.device)
        self._lengths = self._lengths if lengths is None else lengths
        self._is_reverse = call.bidirectional and index % 2 == 1
        order = range(steps) if self._is_reverse else range(steps - 1, -1, -1)
        back = 1 if self._is_reverse else -1
        # Step, the step whose state it read, products with the gradients of the later one.
        places = [(step, step + back, 0 if step == order[0] else count * units) for step in order]
        self._places = [*places, (-1, -1, count * units)]
        self._on_device = torch.tensor(self._places, device=reserve.device)
        projection = (0, 0) if weights.w_hr is None else weights.w_hr.stride()
        output = (0, 0) if grad_output is None else grad_output.stride()[1:]
        sizes = (steps, batch, units, outputs, *weights.w_hh.stride(), *projection, *output, kept)
        self._sizes = torch.tensor(sizes, device=reserve.device)
        rows = -(-batch // _ROWS)
        self._groups = -(-outputs // _COLUMNS), rows
        self._unit_groups = -(-units // _COLUMNS), rows
        flags = (
            ("RAGGED", lengths is not None),
            ("OUTPUT", grad_output is not None),
            ("PROJECTED", weights.w_hr is not None),
        )
        self._source = source_of("gradient", call.kind, weights.w_hh.dtype, flags)

    def launches(self) -> Iterator[Launch]:
        """Yield the launches: one for each step, two with a projection, and one at the end."""
        later = self._none
        for number, (step, earlier, _) in enumerate(self._places[:-1]):
            place = self._on_device[number]
            yield self._state_launch(place, later, step, earlier)
            if self._weights.w_hr is not None:
                yield self._projection_launch(place, self._weights.w_hr, step, earlier)
            later = self._sums[step]
        yield self._state_launch(self._on_device[-1], later, None, -1)

    def _state_launch(self, place: Tensor, later: Tensor, step: int | None, earlier: int) -> Launch:
        def at(tensor: Tensor | None) -> Tensor:
            return self._none if tensor is None or step is None else tensor[step]

        is_projected, has_inputs = self._total is not None, self._inputs is not self._sums
        buffers = (
            *(later, self._weights.w_hh, self._passed, at(self._grad_output), self._hidden),
            *(self._lengths, at(self._reserve), self._earlier(earlier), self._cell),
            *(self._grad_cell, at(None if is_projected else self._sums)),
            *(at(self._inputs if has_inputs else None), at(self._before), at(self._total)),
            *(place, self._sizes),
        )
        written: tuple[int, ...] = ()
        if step is not None:
            written = (12, 13) if is_projected else (10, 11, 12) if has_inputs else (10, 12)
        return Launch(
            *(self._source, "recurrent_gradient", self._groups, _THREADS, buffers),
            outputs=written,
            updated=(2, 9),
        )

    def _projection_launch(self, place: Tensor, weight: Tensor, step: int, earlier: int) -> Launch:
        assert self._total is not None
        assert self._unprojected is not None
        buffers = (
            *(self._total[step], weight, self._lengths, self._reserve[step]),
            *(self._earlier(earlier), self._cell, self._grad_cell, self._sums[step]),
            *(self._unprojected[step], place, self._sizes),
        )
        return Launch(
            *(self._source, "recurrent_projection_gradient", self._unit_groups, _THREADS, buffers),
            outputs=(7, 8),
            updated=(6,),
        )

    def _earlier(self, step: int) -> Tensor:
        return self._reserve[step] if 0 <= step < len(self._reserve) else self._none

    def gradients(self, values: Tensor) -> RecurrentGradients:
        """Return the gradients after all launches, in float32.

        Args:
            values: the layer's input, [T, B, I of the layer], 0 where there is no step.
        """
        weights = self._weights
        recurrent, inputs = self._sums.flatten(0, 1), self._inputs.flatten(0, 1)
        biases: tuple[Tensor | None, Tensor | None] = None, None
        if weights.b_ih is not None:
            ones = recurrent.new_ones((len(recurrent), 1))
            biases = _over_steps(inputs, ones)[:, 0], _over_steps(recurrent, ones)[:, 0]
        own = CellWeights(
            _over_steps(inputs, values.flatten(0, 1)),
            _over_steps(recurrent, self._before.flatten(0, 1)),
            *biases,
        )
        if self._total is not None and self._unprojected is not None:
            total, unprojected = self._total.flatten(0, 1), self._unprojected.flatten(0, 1)
            own = own._replace(w_hr=_over_steps(total, unprojected))
        below = product(LinearCall(self._inputs, weights.w_ih.t()), torch.float32)
        cell = None if self._cell is self._none else self._grad_cell
        return RecurrentGradients(below, self._passed, cell, (own,))


def _copied(given: Tensor | None, like: Tensor) -> Tensor:
    """Return a gradient as float32 of its own, 0 where it is not given."""
    if given is None:
        return torch.zeros_like(like)
    return given.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


def _over_steps(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of two tensors' columns, summed over steps and sequences in one order."""
    return product(LinearCall(left.t(), right.t()), torch.float32)

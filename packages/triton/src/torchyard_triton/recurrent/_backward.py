"""``backward``: gradients of recurrent layers from a reserve, one launch for each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentGradients,
    RecurrentKind,
)
from torchyard_triton._launch import Launch
from torchyard_triton.recurrent._layers import lengths_of, sizes_of
from torchyard_triton.recurrent._tiles import StepTiles, step_tiles

__all__ = ["BackwardSteps", "backward"]


def backward(
    call: RecurrentCall,
    reserve: Tensor,
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    *,
    tiles: StepTiles | None = None,
) -> RecurrentGradients:
    """Compute ``recurrent_backward/1``.

    The gradients of all steps' sums are one launch each; the products with them over all steps are
    torch's.

    Args:
        call, reserve, grad_output, grad_hidden, grad_cell: as the contract has them, without a
            projection.
        tiles: None: the default.
    """
    sizes = sizes_of(call)
    above = grad_output
    hidden: list[Tensor] = []
    cell: list[Tensor] = []
    weights: list[CellWeights] = []
    for layer in reversed(range(call.num_layers)):
        first = layer * sizes.directions
        values = _layer_input(call, reserve, layer)
        inputs: list[Tensor] = []
        ends: list[tuple[Tensor, Tensor | None, CellWeights]] = []
        for direction in range(sizes.directions):
            index = first + direction
            span = slice(direction * sizes.hidden, (direction + 1) * sizes.hidden)
            run = BackwardSteps(
                *(call, index, reserve[index]),
                None if above is None else above[:, :, span],
                None if grad_hidden is None else grad_hidden[index],
                None if grad_cell is None else grad_cell[index],
                tiles=tiles,
            )
            for launch in run.launches():
                launch.run()
            found = run.finished(values)
            inputs.append(found.input)
            ends.append((found.hidden, found.cell, found.weights))
        above = inputs[0] if len(inputs) == 1 else inputs[0] + inputs[1]
        hidden[:0] = [one[0] for one in ends]
        cell[:0] = [one[1] for one in ends if one[1] is not None]
        weights[:0] = [one[2] for one in ends]
    assert above is not None
    dtype = call.input.dtype
    return RecurrentGradients(
        above.to(dtype),
        torch.stack(hidden).to(dtype),
        torch.stack(cell).to(dtype) if cell else None,
        tuple(one.to(dtype) for one in weights),
    )


def _layer_input(call: RecurrentCall, reserve: Tensor, layer: int) -> Tensor:
    """Return a layer's input, [T, B, I of the layer], 0 where there is no step."""
    sizes = sizes_of(call)
    if layer:
        below = reserve[(layer - 1) * sizes.directions : layer * sizes.directions]
        return torch.cat(below[:, :, :, -sizes.hidden :].unbind(0), dim=2)
    if call.lengths is None:
        return call.input
    # The input after a sequence's end may be NaN, and zero times NaN is not zero.
    lengths = call.lengths.to(call.input.device)
    steps = torch.arange(sizes.steps, device=call.input.device)
    return torch.where((steps[:, None] < lengths)[:, :, None], call.input, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _LayerGradients:
    """Gradients of one layer and direction, in float32."""

    input: Tensor
    hidden: Tensor
    cell: Tensor | None
    weights: CellWeights


class BackwardSteps:
    """The steps of one layer and direction, from the one that was taken last.

    Args:
        call: the call.
        index: of the layer and direction.
        reserve: of it, [T, B, columns].
        grad_output: [T, B, H], any strides; None: 0.
        grad_hidden, grad_cell: [B, H]; None: 0.
        tiles: as of :func:`backward`.
    """

    def __init__(
        self,
        call: RecurrentCall,
        index: int,
        reserve: Tensor,
        grad_output: Tensor | None,
        grad_hidden: Tensor | None,
        grad_cell: Tensor | None,
        *,
        tiles: StepTiles | None,
    ) -> None:
        sizes = self._sizes = sizes_of(call)
        self._reverse = index % sizes.directions == 1
        self._weights = call.weights[index]
        self._reserve = reserve
        self._grad_output = grad_output
        self._narrow = torch.bfloat16 if call.input.dtype == torch.bfloat16 else torch.float32
        self._hidden = call.hidden[index].float().contiguous()
        zeros = torch.zeros_like(self._hidden)
        self._cell = self._hidden if call.cell is None else call.cell[index].float().contiguous()
        self._grad_hidden = zeros if grad_hidden is None else grad_hidden.float().contiguous()
        self._grad_cell = None
        if call.cell is not None:
            given = zeros if grad_cell is None else grad_cell
            self._grad_cell = given.to(torch.float32, copy=True).contiguous()
        self._passed = torch.empty_like(self._hidden)
        shape = (sizes.steps, sizes.batch)
        self._sums = reserve.new_empty((*shape, sizes.gates * sizes.hidden))
        self._inner = (
            reserve.new_empty((*shape, sizes.hidden)) if call.kind is RecurrentKind.GRU else None
        )
        self._lengths = lengths_of(call)
        self._tiles = (step_tiles("step_gradient") if tiles is None else tiles).within(sizes.batch)
        self._kind = call.kind

    def launches(self) -> list[Launch]:
        """Return the launches, in order."""
        count = self._sizes.steps
        order = range(count) if self._reverse else range(count - 1, -1, -1)
        back = 1 if self._reverse else -1
        found = [
            self._launch(step, -1 if step == order[0] else step - back, step + back)
            for step in order
        ]
        return [*found, self._launch(-1, order[-1], -1)]

    def _launch(self, step: int, later: int, earlier: int) -> Launch:
        import triton.language as tl

        from torchyard_triton.device.recurrent.step_gradient import recurrent_step_gradient

        sizes, weight, nothing = self._sizes, self._weights.w_hh, self._sums
        constants: dict[str, Any] = {
            "KIND": str(self._kind),
            "RAGGED": self._lengths is not None,
            "OUTPUT": self._grad_output is not None,
            "FACTOR": tl.bfloat16 if self._narrow == torch.bfloat16 else tl.float32,
            **self._tiles.constants,
        }
        output = nothing if self._grad_output is None else self._grad_output
        arguments = (
            self._sums,
            nothing if self._inner is None else self._inner,
            *(self._grad_hidden, self._passed),
            nothing if self._grad_cell is None else self._grad_cell,
            (weight, *weight.stride()),
            nothing if self._lengths is None else self._lengths,
            *(output, self._reserve, self._hidden, self._cell),
            *(step, later, earlier, sizes.batch, sizes.hidden, *output.stride()),
            *(self._reserve.shape[2], sizes.steps),
        )
        grid = -(-sizes.batch // self._tiles.rows), -(-sizes.hidden // self._tiles.columns)
        return Launch(recurrent_step_gradient, grid, arguments, constants)

    def finished(self, values: Tensor) -> _LayerGradients:
        """Return the gradients after all launches.

        Args:
            values: the layer's input, [T, B, I of the layer], 0 where there is no step.
        """
        sizes, weights = self._sizes, self._weights
        recurrent = self._sums.flatten(0, 1)
        inputs = recurrent
        if self._inner is not None:
            inputs = torch.cat([recurrent[:, : 2 * sizes.hidden], self._inner.flatten(0, 1)], dim=1)
        biased = weights.b_ih is not None
        own = CellWeights(
            self._product(inputs.t(), values.flatten(0, 1)),
            self._product(recurrent.t(), self._before().flatten(0, 1)),
            inputs.sum(0) if biased else None,
            recurrent.sum(0) if biased else None,
        )
        below = self._product(inputs, weights.w_ih).view(*values.shape)
        return _LayerGradients(below, self._passed, self._grad_cell, own)

    def _before(self) -> Tensor:
        """Return the hidden state that each step read; where there is no step, any number."""
        kept = self._reserve[:, :, -self._sizes.hidden :]
        start = self._hidden[None]
        if not self._reverse:
            return torch.cat([start, kept[:-1]])
        after = torch.cat([kept[1:], start])
        if self._lengths is None:
            return after
        steps = torch.arange(1, self._sizes.steps + 1, device=kept.device)
        return torch.where((steps[:, None] < self._lengths)[:, :, None], after, start)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """Return a product over all steps. In float16 small gradients would vanish."""
        return (left.to(self._narrow) @ right.to(self._narrow)).float()

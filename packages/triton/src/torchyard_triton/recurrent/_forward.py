"""``forward``: outputs of recurrent layers, one launch for each step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.recurrent.contract import (
    RecurrentCall,
    RecurrentKind,
    RecurrentResult,
    reserve_columns,
)
from torchyard_triton._launch import Launch
from torchyard_triton.linear._tiles import LinearTiles
from torchyard_triton.recurrent._layers import input_sums, lengths_of, sizes_of
from torchyard_triton.recurrent._tiles import StepTiles, step_tiles

__all__ = ["ForwardSteps", "forward"]


def forward(
    call: RecurrentCall,
    *,
    tiles: StepTiles | None = None,
    products: LinearTiles | None = None,
) -> RecurrentResult:
    """Compute ``recurrent/1``.

    Args:
        call: of float16, bfloat16 or float32, without a projection.
        tiles, products: of the steps, and of the inputs' products; None: the default.
    """
    sizes = sizes_of(call)
    lengths = lengths_of(call)
    given = call.input
    layers = call.num_layers * sizes.directions
    reserve = _reserve(call, layers)
    hidden = torch.empty_like(call.hidden, memory_format=torch.contiguous_format)
    cell = (
        None
        if call.cell is None
        else torch.empty_like(call.cell, memory_format=torch.contiguous_format)
    )
    for layer in range(call.num_layers):
        shape = (sizes.steps, sizes.batch, sizes.directions * sizes.hidden)
        output = given.new_empty(shape)
        for direction in range(sizes.directions):
            index = layer * sizes.directions + direction
            weights = call.weights[index]
            sums = input_sums(call.kind, given, weights, tiles=products)
            run = ForwardSteps(
                *(call, index, sums, output, lengths),
                reserve=None if reserve is None else reserve[index],
                tiles=tiles,
            )
            order = range(sizes.steps)
            for step in reversed(order) if direction else order:
                run.launch(step).run()
            hidden[index] = run.before
            if cell is not None:
                cell[index] = run.cell
        given = output
    return RecurrentResult(given, hidden, cell, reserve)


def _reserve(call: RecurrentCall, layers: int) -> Tensor | None:
    if not call.reserve:
        return None
    sizes = sizes_of(call)
    columns = reserve_columns(call.kind, sizes.hidden, sizes.hidden)
    return torch.empty(
        (layers, sizes.steps, sizes.batch, columns),
        dtype=torch.float32,
        device=call.input.device,
    )


class ForwardSteps:
    """The steps of one layer and direction.

    Args:
        call: the call.
        index: of the layer and direction.
        sums: what the inputs add, [T, B, gates * H].
        output: [T, B, directions * H]; this direction's columns are written.
        lengths: as ``lengths_of``.
        reserve: [T, B, columns]; None: not wanted.
        tiles: as of :func:`forward`.
    """

    def __init__(
        self,
        call: RecurrentCall,
        index: int,
        sums: Tensor,
        output: Tensor,
        lengths: Tensor | None,
        *,
        reserve: Tensor | None,
        tiles: StepTiles | None,
    ) -> None:
        sizes = self._sizes = sizes_of(call)
        first = index % sizes.directions * sizes.hidden
        self._sums = sums
        self._output = output[:, :, first : first + sizes.hidden]
        self._lengths = lengths
        self._reserve = reserve
        self._weights = call.weights[index]
        self.before = call.hidden[index].clone(memory_format=torch.contiguous_format)
        self._after = torch.empty_like(self.before)
        self.cell = (
            self.before
            if call.cell is None
            else call.cell[index].to(torch.float32, copy=True).contiguous()
        )
        bias = self._weights.b_hh
        self._tiles = (step_tiles("step") if tiles is None else tiles).within(sizes.batch)
        self._constants: dict[str, Any] = {
            "KIND": str(call.kind),
            "BIAS": bias is not None and call.kind is RecurrentKind.GRU,
            "RAGGED": lengths is not None,
            "RESERVE": reserve is not None,
            **self._tiles.constants,
        }

    def launch(self, step: int) -> Launch:
        """Return the launch of a step; after it ``before`` is the state that it leaves."""
        from torchyard_triton.device.recurrent.step import recurrent_step

        sizes, weights = self._sizes, self._weights
        before, after = self.before, self._after
        self.before, self._after = after, before
        nothing = self._sums
        bias = weights.b_hh
        arguments = (
            *(self._sums, before, after, self.cell),
            (weights.w_hh, *weights.w_hh.stride()),
            nothing if bias is None else bias.contiguous(),
            nothing if self._lengths is None else self._lengths,
            self._output,
            nothing if self._reserve is None else self._reserve,
            *(step, sizes.batch, sizes.hidden, self._output.stride(0), self._output.stride(1)),
            0 if self._reserve is None else self._reserve.shape[2],
        )
        grid = -(-sizes.batch // self._tiles.rows), -(-sizes.hidden // self._tiles.columns)
        return Launch(recurrent_step, grid, arguments, self._constants)

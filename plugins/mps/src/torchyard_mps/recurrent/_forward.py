"""``forward``: outputs and states of recurrent layers, a launch for each step."""

from __future__ import annotations

import torch

from torchyard_kernels.linear.contract import LinearCall
from torchyard_kernels.recurrent.contract import (
    RecurrentCall,
    RecurrentResult,
    gates,
    reserve_columns,
)
from torchyard_mps._runner import run
from torchyard_mps.linear import product
from torchyard_mps.recurrent._steps import LayerSteps

__all__ = ["forward"]


def forward(call: RecurrentCall) -> RecurrentResult:
    """Compute ``recurrent/1``; equal calls give equal bits.

    Of each layer and direction one product computes what all inputs add, then a launch each step;
    with a projection two.

    Args:
        call: of float16, bfloat16 or float32.
    """
    given = call.input
    steps, batch, _ = given.shape
    directions = 2 if call.bidirectional else 1
    outputs = call.hidden.shape[2]
    units = call.weights[0].w_hh.shape[0] // gates(call.kind)
    hidden = torch.empty_like(call.hidden, memory_format=torch.contiguous_format)
    cell = (
        None
        if call.cell is None
        else torch.empty_like(call.cell, memory_format=torch.contiguous_format)
    )
    lengths = None
    if call.lengths is not None:
        lengths = call.lengths.to(device=given.device, dtype=torch.int32)
    reserve = None
    if call.reserve:
        kept = reserve_columns(call.kind, units, outputs)
        shape = (len(call.weights), steps, batch, kept)
        reserve = torch.empty(shape, dtype=torch.float32, device=given.device)
    for layer in range(call.num_layers):
        output = given.new_empty((steps, batch, directions * outputs))
        for direction in range(directions):
            index = layer * directions + direction
            layer_steps = LayerSteps(
                *(call, index, product(LinearCall(given, call.weights[index].w_ih), torch.float32)),
                output[:, :, direction * outputs : (direction + 1) * outputs],
                None if reserve is None else reserve[index],
                lengths,
            )
            order = range(steps) if batch else ()
            for step in reversed(order) if direction else order:
                for launch in layer_steps.launches(step):
                    run(launch)
            hidden[index] = layer_steps.before
            if cell is not None:
                cell[index] = layer_steps.cell
        given = output
    return RecurrentResult(given, hidden, cell, reserve)

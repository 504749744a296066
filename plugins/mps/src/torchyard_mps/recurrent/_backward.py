"""``backward``: gradients of recurrent layers from a reserve, a launch for each step."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels.recurrent.contract import RecurrentCall, RecurrentGradients
from torchyard_mps._runner import run
from torchyard_mps.recurrent._gradient_steps import GradientSteps

__all__ = ["backward"]


def backward(
    call: RecurrentCall,
    reserve: Tensor,
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
) -> RecurrentGradients:
    """Compute ``recurrent_backward/1``; equal calls give equal bits.

    Each sum is taken in one order, without atomics, of float32 factors: in float16 small gradients
    would vanish.

    Args:
        call: of float16, bfloat16 or float32.
        reserve: as the contract has it.
        grad_output, grad_hidden, grad_cell: gradients of the outputs; None is 0.
    """
    directions = 2 if call.bidirectional else 1
    outputs = call.hidden.shape[2]
    lengths = None
    if call.lengths is not None:
        lengths = call.lengths.to(device=reserve.device, dtype=torch.int32)
    above = None if grad_output is None else grad_output.float()
    found: list[RecurrentGradients] = []
    for layer in reversed(range(call.num_layers)):
        values = _layer_input(call, reserve, layer, lengths)
        of_layer = []
        for direction in range(directions):
            index = layer * directions + direction
            span = slice(direction * outputs, (direction + 1) * outputs)
            steps = GradientSteps(
                *(call, index, reserve[index]),
                None if above is None else above[:, :, span],
                None if grad_hidden is None else grad_hidden[index],
                None if grad_cell is None else grad_cell[index],
                lengths,
            )
            for launch in steps.launches() if call.input.shape[1] else ():
                run(launch)
            of_layer.append(steps.gradients(values))
        above = torch.stack([one.input for one in of_layer]).sum(0)
        found[:0] = of_layer
    assert above is not None
    dtype = call.input.dtype
    cells = [one.cell for one in found if one.cell is not None]
    return RecurrentGradients(
        above.to(dtype),
        torch.stack([one.hidden for one in found]).to(dtype),
        torch.stack(cells).to(dtype) if cells else None,
        tuple(one.weights[0].to(dtype) for one in found),
    )


def _layer_input(
    call: RecurrentCall, reserve: Tensor, layer: int, lengths: Tensor | None
) -> Tensor:
    """Return a layer's input, [T, B, I of the layer], 0 where there is no step."""
    if layer:
        directions, outputs = 2 if call.bidirectional else 1, call.hidden.shape[2]
        below = reserve[(layer - 1) * directions : layer * directions, :, :, -outputs:]
        return torch.cat(below.unbind(0), dim=2)
    if lengths is None:
        return call.input
    # The input after a sequence's end may be NaN, and zero times NaN is not zero.
    steps = torch.arange(call.input.shape[0], device=lengths.device)
    return torch.where((steps[:, None] < lengths)[:, :, None], call.input, 0)

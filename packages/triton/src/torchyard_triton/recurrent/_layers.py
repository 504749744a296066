"""What forward and backward have in common: the order of steps, lengths, what inputs add."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import LinearCall
from torchyard_kernels.recurrent.contract import CellWeights, RecurrentCall, RecurrentKind, gates
from torchyard_triton.linear._product import product_launches
from torchyard_triton.linear._tiles import LinearTiles

__all__ = ["Sizes", "input_sums", "lengths_of", "sizes_of"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a call: steps, sequences, hidden units, directions and gates."""

    steps: int
    batch: int
    hidden: int
    directions: int
    gates: int


def sizes_of(call: RecurrentCall) -> Sizes:
    """Return the sizes of a call."""
    count = gates(call.kind)
    return Sizes(
        call.input.shape[0],
        call.input.shape[1],
        call.weights[0].w_hh.shape[0] // count,
        2 if call.bidirectional else 1,
        count,
    )


def lengths_of(call: RecurrentCall) -> Tensor | None:
    """Return the lengths as int32 on the input's device; None where all have all steps."""
    if call.lengths is None:
        return None
    return call.lengths.to(device=call.input.device, dtype=torch.int32)


def input_sums(
    kind: RecurrentKind,
    x: Tensor,
    weights: CellWeights,
    *,
    tiles: LinearTiles | None,
) -> Tensor:
    """Return float32 [T, B, gates * H]: the inputs' products, and biases outside of any gate.

    Args:
        kind: the equations.
        x: [T, B, I of the layer].
        weights: of the layer and direction.
        tiles: of the product, see ``torchyard_triton.linear``.
    """
    bias = None
    if weights.b_ih is not None and weights.b_hh is not None:
        inner = weights.b_hh.float()
        if kind is RecurrentKind.GRU:
            inner = inner.clone()
            inner[inner.shape[0] // 3 * 2 :] = 0.0
        bias = weights.b_ih.float() + inner
    call = LinearCall(x, weights.w_ih, bias)
    launches, sums = product_launches(call, tiles=tiles, dtype=torch.float32)
    for launch in launches:
        launch.run()
    return sums

"""Calls that are like one that was decided before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from torchyard_kernels.recurrent._ops import CALLS
from torchyard_kernels.recurrent._packed import PackedRecurrent
from torchyard_kernels.recurrent.contract import RecurrentKind

__all__ = ["served"]

# Named here, because a look-up through modules costs as much as the question.
_deterministic = torch._C._get_deterministic_algorithms
_serving = CALLS.serving


def served(
    kind: RecurrentKind,
    input: Any,
    hidden: Tensor | None,
    cell: Tensor | None,
    weights: Any,
    num_layers: Any,
    bidirectional: Any,
    batch_first: Any,
) -> tuple[Tensor, ...] | None:
    """Return output, hidden and an LSTM's cell, straight from the kernel; None for other calls.

    None is without an effect. Of the arguments nothing is taken for granted; that there is nothing
    else to a call, such as lengths, is for the caller to know. A short call takes less time than
    its description does.
    """
    if is_dynamo_compiling() or hidden is None or _deterministic():
        return None
    serving = _serving()
    if not serving:
        return None
    # What merely counts as one of these is refused where calls are checked.
    if type(num_layers) is not int or num_layers >> 12:
        return None
    if type(bidirectional) is not bool or type(batch_first) is not bool:
        return None
    packed = isinstance(weights, PackedRecurrent)
    made = None
    if packed:
        # Whether packed weights want gradients, nothing shows that a kernel is given.
        if weights.kind is not kind or torch.is_grad_enabled():
            return None
        made = weights.latest()
        num_layers, bidirectional = weights.num_layers, weights.bidirectional
        weights = weights.weights
    if batch_first:
        if not isinstance(input, Tensor) or input.ndim != 3:
            return None
        input = input.transpose(0, 1)
    for serve in serving:
        found: tuple[Tensor, ...] | None = serve(
            kind, weights, packed, made, input, hidden, cell, num_layers, bidirectional
        )
        if found is not None:
            return (found[0].transpose(0, 1), *found[1:]) if batch_first else found
    return None

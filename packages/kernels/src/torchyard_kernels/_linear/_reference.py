"""The reference: what ``linear/1`` means, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels._linear._activations import activations
from torchyard_kernels._linear._formats import unpacked
from torchyard_kernels.contracts.linear import LinearCall

__all__ = ["reference"]


def reference(call: LinearCall) -> Tensor:
    """Return out [..., N] in x's dtype, computed in float64 and rounded once."""
    weight = unpacked(call.weight).to(torch.float64)
    out = activations(call, torch.float64) @ weight.mT
    if call.bias is not None:
        out = out + call.bias.to(torch.float64)
    return out.to(call.x.dtype)

"""kernels.torch: products by torch's own operators."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels.linear._formats.activations import activations, rounds
from torchyard_kernels.linear._formats.table import unpacked
from torchyard_kernels.linear.contract import LinearCall

__all__ = ["product"]


def product(call: LinearCall) -> Tensor:
    """Compute a call; a packed weight is unpacked for it, which costs more than a few rows do."""
    weight = unpacked(call.weight)
    if rounds(call):
        # What rows were rounded to has more digits than 16 bits hold.
        bias = None if call.bias is None else call.bias.float()
        x = activations(call, torch.float32)
        return torch.nn.functional.linear(x, weight.float(), bias).to(call.x.dtype)
    if weight.ndim == 2:
        return torch.nn.functional.linear(call.x, weight, call.bias)
    out = torch.bmm(call.x, weight.mT)
    return out if call.bias is None else out + call.bias

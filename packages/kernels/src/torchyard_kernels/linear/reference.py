"""kernels.reference: the meaning of ``linear/1``, in float64."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torchyard_kernels.linear._formats.activations import activations
from torchyard_kernels.linear._formats.table import unpacked
from torchyard_kernels.linear.contract import LinearCall

__all__ = ["reference"]


def reference(call: LinearCall) -> Tensor:
    """Return out, computed in float64 and rounded once; a prologue's result is rounded too."""
    weight, x = unpacked(call.weight).to(torch.float64), call.x
    if call.prologue is not None:
        x = call.prologue.apply(x.to(torch.float64)).expand(x.shape).to(x.dtype)
    out = activations(replace(call, x=x), torch.float64) @ weight.mT
    if call.bias is not None:
        out = out + call.bias.to(torch.float64)
    if call.epilogue is None:
        return out.to(x.dtype)
    dtype = call.epilogue.dtype(x.dtype)
    out = call.epilogue.apply(*(out.chunk(2, -1) if call.gated else (out,)))
    return out.expand(call.result_shape()).to(dtype).contiguous()

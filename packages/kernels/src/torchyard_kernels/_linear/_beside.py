"""kernels.beside: functions by torch's operators, before and after the best product there is."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from torchyard import registry
from torchyard_kernels._linear._request import request_of, result_shape
from torchyard_kernels.contracts.linear import LINEAR, LinearCall

__all__ = ["compute"]


def compute(call: LinearCall) -> Tensor:
    """Compute a call in three parts; the registry chooses who takes the product."""
    x = call.x
    if call.prologue is not None:
        x = call.prologue.apply(x).expand(x.shape).to(x.dtype)
    plain = replace(call, x=x, prologue=None, epilogue=None)
    y: Tensor = registry().resolve(LINEAR, request_of(plain))(plain)
    if call.epilogue is None:
        return y
    dtype = call.epilogue.dtype(x.dtype)
    out = call.epilogue.apply(*(y.chunk(2, -1) if call.gated else (y,)))
    return out.expand(result_shape(call)).to(dtype).contiguous()

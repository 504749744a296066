"""kernels.composed: functions by torch's operators, composed with the best product."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from torch import Tensor

from torchyard import registry
from torchyard_kernels.linear.contract import LINEAR, LinearCall

__all__ = ["compute"]

_PRODUCT: Final = "kernels.torch"


def compute(call: LinearCall) -> Tensor:
    """Compute a call in three parts; the registry chooses the implementation of the product.

    Where this implementation is demanded by name, torch computes the product.
    """
    x = call.x
    if call.prologue is not None:
        x = call.prologue.apply(x).expand(x.shape).to(x.dtype)
    plain = replace(call, x=x, prologue=None, epilogue=None)
    request = plain.request()
    supported = registry().decide(LINEAR, request).chosen is not None
    y: Tensor = registry().resolve(LINEAR, request, use=None if supported else _PRODUCT)(plain)
    if call.epilogue is None:
        return y
    dtype = call.epilogue.dtype(x.dtype)
    out = call.epilogue.apply(*(y.chunk(2, -1) if call.gated else (y,)))
    return out.expand(call.result_shape()).to(dtype).contiguous()

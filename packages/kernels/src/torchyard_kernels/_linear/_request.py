"""What a call asks for: its request, from sizes and dtypes alone."""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from torchyard_kernels.contracts.linear import LinearCall, LinearRequest, Packed

__all__ = ["request_of"]

_deterministic = torch._C._get_deterministic_algorithms


def request_of(call: LinearCall) -> LinearRequest:
    """Describe a call; reads sizes and dtypes only."""
    x, weight = call.x, call.weight
    bias, deterministic = call.bias is not None, _deterministic()
    place = x.device.type, x.dtype, x.shape
    if isinstance(weight, Packed):
        spec = weight.spec
        shape = (spec.rows, spec.columns)
        return _request(*place, shape, spec.format, spec.options, bias, deterministic)
    return _request(*place, tuple(weight.shape), "", (), bias, deterministic)


# A model's layers make the same request; describing it anew costs as much as a short call.
@lru_cache(maxsize=1024)
def _request(
    device: str,
    dtype: torch.dtype,
    x: torch.Size,
    weight: tuple[int, ...],
    format: str,
    options: tuple[tuple[str, int], ...],
    bias: bool,
    deterministic: bool,
) -> LinearRequest:
    batch = weight[0] if len(weight) == 3 else 1
    return LinearRequest(
        device=device,
        dtype=str(dtype)[6:],
        rows=x[1] if len(weight) == 3 else math.prod(x[:-1]),
        outputs=weight[-2],
        depth=weight[-1],
        batch=batch,
        weight=format,
        weight_options=options,
        bias=bias,
        deterministic=deterministic,
    )

"""What a call asks for: its request, from sizes and dtypes alone."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import torch

from torchyard_kernels.linear.contract import LinearCall, LinearRequest, Packed

__all__ = ["request_of", "result_shape"]

_deterministic = torch._C._get_deterministic_algorithms


def request_of(call: LinearCall) -> LinearRequest:
    """Describe a call; reads sizes and dtypes only."""
    x, weight = call.x, call.weight
    bias, deterministic = call.bias is not None, _deterministic()
    place = x.device.type, x.dtype, x.shape
    if isinstance(weight, Packed):
        spec = weight.spec
        shape = (spec.rows, spec.columns)
        request = _request(*place, shape, spec.format, spec.options, bias, deterministic)
    else:
        request = _request(*place, tuple(weight.shape), "", (), bias, deterministic)
    if call.prologue is None and call.epilogue is None:
        return request
    return _with_functions(request, call)


def result_shape(call: LinearCall) -> torch.Size:
    """Return the shape of a call's result."""
    spec = call.weight.spec if isinstance(call.weight, Packed) else None
    outputs = call.weight.shape[-2] if spec is None else spec.rows  # type: ignore[union-attr]
    return torch.Size((*call.x.shape[:-1], outputs // 2 if call.gated else outputs))


def _with_functions(request: LinearRequest, call: LinearCall) -> LinearRequest:
    before, after = call.prologue, call.epilogue
    return replace(
        request,
        prologue="" if before is None else before.text,
        epilogue="" if after is None else after.text,
        gated=call.gated,
        prologue_captured=() if before is None else before.spreads(call.x.shape),
        epilogue_captured=() if after is None else after.spreads(result_shape(call)),
    )


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

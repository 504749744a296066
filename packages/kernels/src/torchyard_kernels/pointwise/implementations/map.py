"""``pointwise/1`` by torch's own operations, group by group."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchyard_kernels.pointwise._evaluation import WIDE, evaluated
from torchyard_kernels.pointwise.contract import PointwiseCall

__all__ = ["portable_pointwise"]


def portable_pointwise(call: PointwiseCall, wider: Any = WIDE) -> tuple[list[Tensor], ...]:
    """Compute a call; see the contract.

    Args:
        call: any.
        wider: what is computed instead of some dtypes.
    """
    request = call.request
    found = [
        _apart(
            evaluated(request.text, request.inputs, request.captured, items, call.captured, wider),
            (*items, *call.captured),
        )
        for items in zip(*call.inputs, strict=True)
    ]
    results = [list(result) for result in zip(*found, strict=True)]
    if not call.out:
        return tuple(results)
    for written, result in zip(call.out, results, strict=True):
        for into, tensor in zip(written, result, strict=True):
            into.copy_(tensor)
    return tuple(list(written) for written in call.out)


def _apart(results: tuple[Tensor, ...], given: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Return contiguous results that share memory with nothing that was given, nor one another."""
    used = {item.untyped_storage().data_ptr() for item in given if isinstance(item, Tensor)}
    found = []
    for result in results:
        tensor = result.contiguous()
        if tensor.untyped_storage().data_ptr() in used:
            tensor = tensor.clone()
        used.add(tensor.untyped_storage().data_ptr())
        found.append(tensor)
    return tuple(found)

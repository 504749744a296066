"""How a kernel walks the tensors of a group: their device, their shape, their dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.pointwise.contract import PointwiseCall

__all__ = ["Dimension", "broadcast_shape", "device_of_call", "group_layout", "on_device"]

# A size, and the stride of each operand.
Dimension = tuple[int, tuple[int, ...]]


def device_of_call(call: PointwiseCall) -> torch.device:
    """Return the device of a call's tensors; those without dimensions may be on the CPU."""
    tensors = [
        item
        for items in (*call.inputs, call.captured)
        for item in items
        if isinstance(item, Tensor)
    ]
    return next((tensor.device for tensor in tensors if tensor.ndim), tensors[0].device)


def on_device(items: Sequence[Any], device: torch.device) -> list[Any]:
    """Return tensors and numbers, with the tensors that have no dimensions on a device."""
    return [
        item.to(device) if isinstance(item, Tensor) and item.ndim == 0 else item for item in items
    ]


def broadcast_shape(items: Sequence[Any]) -> torch.Size:
    """Return the shape that the tensors among some items have together."""
    found: torch.Size = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        *(item.shape for item in items if isinstance(item, Tensor))
    )
    return found


def group_layout(items: Sequence[Any], shape: torch.Size) -> tuple[Dimension, ...]:
    """Return the dimensions of a group, the innermost first.

    Args:
        items: operands, of which each has a stride in every dimension: 0 where it broadcasts, and
            of numbers.
        shape: that they have together; dimensions that all operands walk as one are one.
    """
    return _layout(shape, tuple(_strides(item, shape) for item in items))


def _strides(item: Any, shape: torch.Size) -> tuple[int, ...]:
    """Return the strides of an operand over a group's shape; 0 where it broadcasts."""
    if not isinstance(item, Tensor):
        return (0,) * len(shape)
    if item.shape == shape:
        return item.stride()
    return item.expand(shape).stride()


@lru_cache(maxsize=4096)
def _layout(shape: torch.Size, strides: tuple[tuple[int, ...], ...]) -> tuple[Dimension, ...]:
    found: list[Dimension] = []
    for dimension in reversed(range(len(shape))):
        size = shape[dimension]
        if size == 1:
            continue
        own = tuple(stride[dimension] for stride in strides)
        if found:
            inner, inner_strides = found[-1]
            if own == tuple(inner * stride for stride in inner_strides):
                found[-1] = inner * size, inner_strides
                continue
        found.append((size, own))
    return tuple(found)

"""torch.vmap for ops without a batch dimension: one call for each element of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["in_front", "one_by_one"]


def in_front(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """Return a tensor with the mapped dimension first; one that is not mapped is expanded."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def one_by_one(
    call: Callable[..., Any], size: int, dims: Sequence[Any], args: Sequence[Any]
) -> tuple[Any, Any]:
    """Compute an op for each element of a batch; return the stacked results and their dimensions.

    Args:
        call: the op; it returns a tensor, a list of tensors, or a tuple of these.
        size: the size of the mapped dimension.
        dims: the mapped dimension of each argument, None, or a list of these.
        args: the arguments.
    """
    parts = [
        call(*(_select(arg, dim, at) for arg, dim in zip(args, dims, strict=True)))
        for at in range(size)
    ]
    if isinstance(parts[0], tuple):
        columns = [_stacked(column) for column in zip(*parts, strict=True)]
        return tuple(found for found, _ in columns), tuple(dim for _, dim in columns)
    return _stacked(parts)


def _select(arg: Any, dim: Any, at: int) -> Any:
    if isinstance(dim, list):
        return [_select(item, one, at) for item, one in zip(arg, dim, strict=True)]
    return arg if dim is None else arg.select(dim, at)


def _stacked(column: Sequence[Any]) -> tuple[Any, Any]:
    if isinstance(column[0], Tensor):
        return torch.stack(list(column)), 0
    return [torch.stack(list(parts)) for parts in zip(*column, strict=True)], [0] * len(column[0])

"""Operators of indices: nonzero, index_copy, take and put_, by scattering and gathering.

An index outside of its dimension is an error, before anything is written: two numbers are read,
which waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_mps.operators.replacements._outputs import fill

__all__ = [
    "index_copy",
    "index_copy_",
    "index_copy_out",
    "nonzero",
    "nonzero_out",
    "put_",
    "require_within",
    "take",
    "take_out",
]


def nonzero(self: Tensor) -> Tensor:
    """Return the places of all elements that are not 0, in order: int64 [count, dimensions]."""
    chosen = (self != 0).flatten()
    count = int(chosen.sum())
    # Element by element: its row of the result; those that are 0 share a row behind the last.
    rows = torch.where(chosen, chosen.cumsum(0) - 1, count)
    found = rows.new_zeros(self.dim(), count + 1)
    for axis, size in enumerate(self.shape):
        shape = [size if at == axis else 1 for at in range(self.dim())]
        places = torch.arange(size, device=self.device).view(shape).expand(self.shape)
        found[axis].scatter_(0, rows, places.flatten())
    return found[:, :count].mT.contiguous()


def nonzero_out(self: Tensor, *, out: Tensor) -> Tensor:
    """Give the places of all elements that are not 0."""
    return fill("nonzero", out, nonzero(self))


def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Return a tensor with some of its slices replaced.

    Args:
        self: of any shape.
        dim: across which slices are.
        index: int64 [slices], from 0.
        source: of self's dtype and shape, with ``slices`` in ``dim``.

    Raises:
        IndexError: an index is outside.
        RuntimeError: source is of another shape.
    """
    into, given = (part if part.dim() else part.unsqueeze(0) for part in (self, source))
    wanted = list(into.shape)
    wanted[dim] = index.numel()
    if list(given.shape) != wanted:
        raise RuntimeError(f"index_copy: source: expected {wanted}, got {list(given.shape)}")
    require_within("index_copy", index, 0, into.shape[dim])
    shape = [1] * into.dim()
    shape[dim] = index.numel()
    # Written into a tensor of our own: a view would be written wrong by some versions of torch.
    copy = into.clone(memory_format=torch.contiguous_format)
    return copy.scatter_(dim, index.view(shape).expand(wanted), given).view(self.shape)


def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Replace some slices of a tensor in place."""
    return self.copy_(index_copy(self, dim, index, source))


def index_copy_out(self: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor) -> Tensor:
    """Give a tensor with some of its slices replaced."""
    return fill("index_copy", out, index_copy(self, dim, index, source))


def take(self: Tensor, index: Tensor) -> Tensor:
    """Return elements by their places among all, as if self had one dimension.

    Args:
        self: of any shape.
        index: int64 of any shape; negative ones count from the end.

    Raises:
        IndexError: an index is outside.
    """
    places = _from_start("take", index, self.numel())
    return self.reshape(-1).gather(0, places.flatten()).view(index.shape)


def take_out(self: Tensor, index: Tensor, *, out: Tensor) -> Tensor:
    """Give elements by their places among all."""
    return fill("take", out, take(self, index))


def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write elements by their places among all, in place, as if self had one dimension.

    Args:
        self: of any shape.
        index: int64 of any shape; negative ones count from the end.
        source: of self's dtype, with as many elements as index.
        accumulate: whether elements are added to those that are there.

    Raises:
        IndexError: an index is outside.
        RuntimeError: source has another number of elements.
    """
    if source.numel() != index.numel():
        raise RuntimeError(f"put_: source: expected {index.numel()} elements, got {source.numel()}")
    places = _from_start("put_", index, self.numel()).flatten()
    flat = self.clone(memory_format=torch.contiguous_format).view(-1)
    if accumulate:
        flat.scatter_add_(0, places, source.reshape(-1))
    else:
        flat.scatter_(0, places, source.reshape(-1))
    return self.copy_(flat.view(self.shape))


def _from_start(operator: str, index: Tensor, size: int) -> Tensor:
    require_within(operator, index, -size, size)
    return torch.where(index < 0, index + size, index)


def require_within(operator: str, index: Tensor, least: int, end: int) -> None:
    """Raise an IndexError where an index is less than ``least``, or ``end`` or more."""
    if not index.numel():
        return
    low, high = torch.stack([index.min(), index.max()]).tolist()
    if low < least or high >= end:
        raise IndexError(
            f"{operator}: index: expected {least} to {end - 1}, got {low if low < least else high}"
        )

"""Between the tensors of torch.distributed's calls and the contiguous ones of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed import ReduceOp

__all__ = ["LINEAR", "Reduction", "dense", "parse_operation", "put_back", "real", "room"]

# What is defined on complex numbers, taken as pairs of real ones.
LINEAR: Final = frozenset({0, 1})
_PREMUL_SUM: Final = 8


class Reduction:
    """A ReduceOp as an engine knows it.

    Attributes:
        number: the engine's number of it.
        factor: multiplies this rank's tensor before; None where nothing does.
    """

    __slots__ = ("factor", "number")

    def __init__(self, number: int, factor: float | Tensor | None = None) -> None:
        self.number = number
        self.factor = factor


def parse_operation(op: ReduceOp) -> Reduction:
    """Return what a ReduceOp asks for."""
    # Options hold a ReduceOp, callers may give its type alone.
    chosen: Any = getattr(op, "op", op)
    number = int(chosen)
    if number == _PREMUL_SUM:
        state: Any = op.__getstate__()
        return Reduction(0, state[1])
    return Reduction(number)


def real(what: str, tensor: Tensor, reduction: Reduction) -> Tensor:
    """Return a tensor that can be reduced as real numbers, over the same memory.

    Raises:
        TypeError: the reduction is not defined for it.
    """
    if not tensor.is_complex():
        return tensor
    if reduction.number not in LINEAR:
        raise TypeError(f"{what}: only sums and averages are defined on {tensor.dtype}")
    return torch.view_as_real(tensor)


def _check_layout(tensor: Tensor) -> None:
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"shm: expected dense tensors, got one of {tensor.layout}; call to_dense() on it, or "
            "all_reduce, which takes sparse COO tensors too"
        )


def dense(tensor: Tensor) -> Tensor:
    """Return the tensor's elements in order: itself, or a copy.

    Raises TypeError if it is sparse.
    """
    _check_layout(tensor)
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def room(tensor: Tensor) -> Tensor:
    """Return where to put a result for the tensor: itself, or memory beside it.

    Raises TypeError if it is sparse.
    """
    _check_layout(tensor)
    if tensor.is_contiguous():
        return tensor
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def put_back(targets: Sequence[Tensor], rooms: Sequence[Tensor]) -> None:
    """Copy what lies beside its target there."""
    for target, place in zip(targets, rooms, strict=True):
        if place is not target:
            target.detach().copy_(place.detach())

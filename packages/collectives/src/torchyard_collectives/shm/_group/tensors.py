"""Conversion between the tensors of a call and the contiguous ones of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed import ReduceOp

__all__ = [
    "LINEAR",
    "Reduction",
    "check_alike",
    "check_memory",
    "dense",
    "parse_operation",
    "put_back",
    "real",
    "room",
]

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


def check_alike(what: str, *tensors: Tensor) -> None:
    """Raise TypeError if tensors of a call have several dtypes: their bytes would be taken over."""
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        named = " and ".join(sorted(map(str, dtypes)))
        raise TypeError(
            f"{what}: expected inputs and outputs of one dtype, got {named}; convert the inputs "
            "with to() first"
        )


def check_memory(tensor: Tensor) -> Tensor:
    """Return a tensor whose elements are in this process's memory: the given one, mostly.

    Raises:
        TypeError: it is sparse, on another device, or a subclass that holds other tensors.
        ValueError: its storage was freed or made smaller.
    """
    if type(tensor) is not Tensor:
        # The result of a functional collective, which may be under way.
        waiting = getattr(tensor, "trigger_wait", None)
        tensor = tensor if waiting is None else waiting()
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"shm: expected dense tensors, got one of {tensor.layout}; call to_dense() on it, or "
            "all_reduce, which takes sparse COO tensors too"
        )
    count = tensor.numel()
    if count == 0:
        return tensor
    if not tensor.is_cpu or tensor.data_ptr() == 0:
        there = tensor.untyped_storage().nbytes() if tensor.is_cpu else 0
        if tensor.is_cpu and there == 0:
            raise ValueError(_without_memory(tensor, there))
        raise TypeError(
            f"shm: expected tensors in CPU memory, got {type(tensor).__name__} on "
            f"{tensor.device}; give what it holds, as to_local() of a DTensor, or a copy on cpu"
        )
    last = count - 1
    if not tensor.is_contiguous():
        last = sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
    there = tensor.untyped_storage().nbytes()
    if (tensor.storage_offset() + last + 1) * tensor.itemsize > there:
        raise ValueError(_without_memory(tensor, there))
    return tensor


def _without_memory(tensor: Tensor, there: int) -> str:
    return (
        f"shm: expected a tensor whose memory is there, got one of shape {tuple(tensor.shape)} and "
        f"{tensor.dtype} whose storage holds {there} bytes; it was freed, as FSDP frees parameters "
        "that it does not need; gather it first"
    )


def dense(tensor: Tensor) -> Tensor:
    """Return the tensor's elements in order: itself, or a copy. See :func:`check_memory`."""
    tensor = check_memory(tensor)
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def room(tensor: Tensor) -> Tensor:
    """Return where to put a result for the tensor: itself, or memory beside it."""
    tensor = check_memory(tensor)
    if tensor.is_contiguous():
        return tensor
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def put_back(targets: Sequence[Tensor], rooms: Sequence[Tensor]) -> None:
    """Copy results that are not in their target yet."""
    for target, place in zip(targets, rooms, strict=True):
        if place is not target:
            target.detach().copy_(place.detach())

"""Addresses of tensors for native code, checked against the storage that they reach into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._tensor_reader import reads_tensors

__all__ = ["address", "addresses"]


def _portable(tensor: Tensor, name: str, least: int = 0, /) -> int:
    """Do what ``_native.address`` does, where torch lacks what that needs."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
    reached = 0
    if tensor.numel():
        steps = sum(
            (size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
        )
        reached = (int(tensor.storage_offset()) + steps + 1) * tensor.element_size()
    place: int = tensor.data_ptr()
    found = tensor.untyped_storage().nbytes() if place or not reached else 0
    if found < reached:
        raise ValueError(
            f"{name}: expected {reached} bytes of storage, got {found}: its memory was freed, made "
            "smaller, or never there; give it memory again before the call"
        )
    if tensor.numel() * tensor.element_size() < least:
        raise ValueError(
            f"{name}: expected a tensor of {least} bytes, got "
            f"{tensor.numel() * tensor.element_size()}"
        )
    return place


# address(tensor, name, least=0): the address of a dense tensor's first element. Every address that
# native code is given comes from here. ``least`` is how many bytes of elements will be read.
#
# Raises:
#     TypeError: what came is no tensor in this machine's memory.
#     ValueError: its storage is smaller than its sizes, strides and offset reach, or its elements
#         are fewer than ``least`` bytes.
address: Final = _native.address if reads_tensors() else _portable


def addresses(tensors: Sequence[Tensor], name: str) -> list[int]:
    """Return the addresses of tensors that are captured by a function of that name."""
    return [address(tensor, f"{name}: captured tensor {i}") for i, tensor in enumerate(tensors)]

"""Tensors inside calls and results: in tuples, lists and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

__all__ = ["laid", "mapped", "named", "same_bits"]


def named(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its path, such as ``weights[0].w_ih``."""
    if isinstance(value, Tensor):
        yield path, value
    for name, item in _parts(value):
        yield from named(item, f"{path}{name}".lstrip("."))


def mapped(value: Any, change: Callable[[str, Tensor], Tensor], path: str = "") -> Any:
    """Return the same with every tensor changed; ``change`` gets its path too."""
    if isinstance(value, Tensor):
        return change(path, value)
    new = {name: mapped(item, change, f"{path}{name}".lstrip(".")) for name, item in _parts(value)}
    if not new:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name[1:]: item for name, item in new.items()})
    if hasattr(value, "_fields"):
        return type(value)(*new.values())
    return type(value)(new.values())


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with what it adds to the path."""
    if is_dataclass(value) and not isinstance(value, type):
        # A field without init follows from the others.
        given = (item.name for item in fields(value) if item.init)
        yield from ((f".{name}", getattr(value, name)) for name in given)
    elif hasattr(value, "_fields"):
        yield from ((f".{name}", getattr(value, name)) for name in value._fields)
    elif isinstance(value, tuple | list):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))


def laid(tensor: Tensor, layout: str) -> Tensor:
    """Return equal elements laid out in memory in another way.

    Args:
        tensor: any.
        layout: ``contiguous``; ``offset``: behind other elements of its memory; ``strided``: every
            other element of a row; ``transposed``: columns side by side. Gaps hold 77.

    Raises:
        ValueError: another layout.
    """
    match layout:
        case "contiguous":
            return tensor.contiguous()
        case "offset":
            memory = tensor.new_full((tensor.numel() + 5,), 77)
            return memory[3 : 3 + tensor.numel()].view(tensor.shape).copy_(tensor)
        case "strided":
            if not tensor.dim():
                return tensor
            wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1]), 77)
            return wide[..., ::2].copy_(tensor)
        case "transposed":
            return tensor.mT.contiguous().mT if tensor.dim() > 1 else laid(tensor, "strided")
    raise ValueError(f"layout: expected a known one, got {layout!r}")


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether dtypes, shapes and elements agree, NaN with NaN, the signs of zeros too."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    number = ~one.isnan()
    return (
        torch.equal(one.isnan(), other.isnan())
        and torch.equal(torch.where(number, one, 0), torch.where(number, other, 0))
        and torch.equal(one.signbit() & number, other.signbit() & number)
    )

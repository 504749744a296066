"""The table of a call: addresses, numbers, sizes and strides of each group."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.pointwise.contract.layout import Dimension, group_layout

__all__ = ["Table", "table_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What a kernel reads of a call: see ``torchyard_triton.device.pointwise.operands``.

    Attributes:
        rows: int64 [groups, width], on the device.
        chunks: int64 [programs, 2], on the device.
        dimensions: of every group; 0 where all operands have their elements side by side.
        aligned: whether every address, and every number of elements, is a multiple of 16.
    """

    rows: Tensor
    chunks: Tensor
    dimensions: int
    aligned: bool


def table_of(
    groups: Sequence[Sequence[Any]],
    shapes: Sequence[torch.Size],
    device: torch.device,
    block: int,
) -> Table:
    """Return the table of some groups.

    Args:
        groups: of each the operands: tensors and numbers, those that are written to last.
        shapes: of each the broadcast shape.
        device: of the tensors.
        block: elements of a chunk.
    """
    layouts = [group_layout(items, shape) for items, shape in zip(groups, shapes, strict=True)]
    side_by_side = all(
        _is_side_by_side(items, layout) for items, layout in zip(groups, layouts, strict=True)
    )
    dimensions = 0 if side_by_side else max(1, *(len(layout) for layout in layouts))
    rows = array("q")
    aligned = True
    for items, shape, layout in zip(groups, shapes, layouts, strict=True):
        rows.append(shape.numel())
        aligned = aligned and shape.numel() % 16 == 0
        for item in items:
            value = item.data_ptr() if isinstance(item, Tensor) else _bits(item)
            aligned = aligned and (not isinstance(item, Tensor) or value % 16 == 0)
            rows.append(value)
        if dimensions:
            padded = layout + ((1, (0,) * len(items)),) * (dimensions - len(layout))
            rows.extend(size for size, _ in padded)
            for operand in range(len(items)):
                rows.extend(strides[operand] for _, strides in padded)
    sizes = tuple(shape.numel() for shape in shapes)
    return Table(
        _on_device(rows.tobytes(), device), _chunks(sizes, block, device), dimensions, aligned
    )


def _is_side_by_side(items: Sequence[Any], layout: tuple[Dimension, ...]) -> bool:
    """Return whether the n-th element of each tensor is n elements behind its first."""
    tensors = [number for number, item in enumerate(items) if isinstance(item, Tensor)]
    return len(layout) <= 1 and all(
        strides[number] == 1 for _, strides in layout for number in tensors
    )


@lru_cache(maxsize=256)
def _on_device(rows: bytes, device: torch.device) -> Tensor:
    """Return int64 numbers on a device. The next step of a training loop has the same ones."""
    return torch.frombuffer(bytearray(rows), dtype=torch.int64).to(device)


@lru_cache(maxsize=256)
def _chunks(sizes: tuple[int, ...], block: int, device: torch.device) -> Tensor:
    """Return the group of each chunk, and how many chunks of it come before."""
    counts = torch.tensor([-(-size // block) for size in sizes], dtype=torch.int64)
    group = torch.repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    place = torch.arange(int(counts.sum())) - before[group]
    return torch.stack([group, place], dim=1).to(device)


def _bits(number: Any) -> int:
    """Return a number as it is stored: a float's bits, an int or a truth value as it is."""
    if isinstance(number, float):
        found: int = struct.unpack("<q", struct.pack("<d", number))[0]
        return found
    return int(number)

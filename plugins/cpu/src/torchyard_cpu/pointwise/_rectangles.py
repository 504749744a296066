"""A group of tensors that broadcast, as rectangles of rows and columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_cpu._addresses import address

__all__ = ["Place", "Rectangle", "rectangles"]

# Address, and the strides of rows and columns in elements.
Place: TypeAlias = tuple[int, int, int]

# More rectangles than this are worse than copies of the tensors that need them.
_MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Where the values of one rectangle lie.

    Attributes:
        rows, columns: its size.
        items: the group's inputs.
        operands: of each input and captured tensor its place, or a plain number itself.
        results: of each result its place.
    """

    rows: int
    columns: int
    items: Sequence[Any]
    operands: tuple[Any, ...]
    results: tuple[Place, ...]


def rectangles(
    items: Sequence[Any],
    captured: Sequence[Tensor],
    results: Sequence[Tensor],
    copied: list[tuple[Tensor, Tensor]],
) -> list[Rectangle]:
    """Return the rectangles of a group.

    Args:
        items: its inputs: tensors, and numbers.
        captured: what it captures.
        results: what is written, of the broadcast shape.
        copied: where results are computed elsewhere, because their layout fits no other's, they
            are added: the tensor to write in the end, and the one that holds its values.
    """
    given = [*items, *captured]
    shape = results[0].shape
    tensors = [
        item.expand(shape) if isinstance(item, Tensor) and item.shape != shape else item
        for item in given
    ]
    seen = [item for item in tensors if isinstance(item, Tensor)]
    sizes, strides = _collapsed(
        list(shape), [*(t.stride() for t in results), *(t.stride() for t in seen)]
    )
    outer = sizes[:-2]
    if outer and _product(outer) > _MOST:
        written = [torch.empty(shape, dtype=tensor.dtype) for tensor in results]
        copied += zip(results, written, strict=True)
        plain = [item.contiguous() if isinstance(item, Tensor) else item for item in tensors]
        # The copies live as long as the rectangles do.
        return [
            Rectangle(part.rows, part.columns, (*items, plain), part.operands, part.results)
            for part in rectangles(plain, (), written, copied)
        ]
    rows, columns = sizes[-2:]
    found = []
    for index in itertools.product(*(range(size) for size in outer)):
        places = iter(
            [
                (
                    address(tensor, "foreach_map: tensor")
                    + sum(i * step for i, step in zip(index, own, strict=False))
                    * tensor.element_size(),
                    own[-2],
                    own[-1],
                )
                for tensor, own in zip((*results, *seen), strides, strict=True)
            ]
        )
        written_at = tuple(next(places) for _ in results)
        operands = tuple(next(places) if isinstance(item, Tensor) else item for item in tensors)
        found.append(Rectangle(rows, columns, items, operands, written_at))
    return found


def _collapsed(
    sizes: list[int], strides: list[tuple[int, ...]]
) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return fewer dimensions, at least two, over which the same elements are visited.

    The first tensor's memory order decides: its smallest stride becomes the columns.
    """
    order = sorted(
        (d for d in range(len(sizes)) if sizes[d] != 1), key=lambda d: strides[0][d], reverse=True
    )
    merged: list[tuple[int, tuple[int, ...]]] = []
    for dimension in order:
        size, steps = sizes[dimension], tuple(own[dimension] for own in strides)
        if merged and all(
            outer == inner * size for outer, inner in zip(merged[-1][1], steps, strict=True)
        ):
            merged[-1] = (merged[-1][0] * size, steps)
        else:
            merged.append((size, steps))
    none = (0,) * len(strides)
    merged = [(1, none)] * (2 - len(merged)) + merged
    # Alone it would be a column of rows.
    return [size for size, _ in merged], [
        tuple(steps[tensor] for _, steps in merged) for tensor in range(len(strides))
    ]


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total

"""What a launch is given of a call: of each group its tensors, and where results are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.pointwise.contract import PointwiseCall
from torchyard_kernels.pointwise.contract.layout import (
    broadcast_shape,
    device_of_call,
    on_device,
)
from torchyard_mps.pointwise._program import MOST_TENSORS, MapProgram

__all__ = ["Group", "Operands", "operands_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A group with elements.

    Attributes:
        items: its tensors and numbers.
        tensors: its operands: tensors among the items, captured tensors of which elements are
            inputs, and those that results are written to and no item is.
        shape: that they have together.
    """

    items: list[Any]
    tensors: list[Tensor]
    shape: torch.Size


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """The tensors of a call.

    Attributes:
        groups: those with elements.
        results: of each result the tensors of all groups.
        written: of each result the place among a group's operands.
        shared: places of the operands that all groups have in common.
        extra: the first place of those that are results alone.
        looked_up: captured tensors that the program indexes.
        captured: all captured tensors.
    """

    groups: list[Group]
    results: tuple[list[Tensor], ...]
    written: tuple[int, ...]
    shared: tuple[int, ...]
    extra: int
    looked_up: tuple[Tensor, ...]
    captured: tuple[Tensor, ...]

    @property
    def most_groups(self) -> int:
        """How many groups' buffers a launch has room for."""
        room = MOST_TENSORS - len(self.shared) - len(self.looked_up)
        return room // (len(self.groups[0].tensors) - len(self.shared))


def operands_of(call: PointwiseCall, program: MapProgram) -> Operands:
    """Return the tensors of a call; results are new where it has none to write to."""
    device = device_of_call(call)
    captured = tuple(on_device(call.captured, device))
    given = [on_device(items, device) for items in zip(*call.inputs, strict=True)]
    shapes = [broadcast_shape([*items, *captured]) for items in given]
    results: tuple[list[Tensor], ...] = tuple(list(written) for written in call.out)
    if not results:
        results = tuple(
            [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
            for dtype in program.results
        )
    filled = [number for number, shape in enumerate(shapes) if shape.numel()]
    own = [number for number, item in enumerate(given[0]) if isinstance(item, Tensor)]
    elements = captured if program.elements else ()
    extra = len(own) + len(elements)
    alone: list[list[Tensor]] = []
    written = []
    for result in results:
        place = _place_among(result, [given[number] for number in filled], own, filled)
        if place is None:
            place = extra + len(alone)
            alone.append(result)
        written.append(place)
    groups = [
        Group(
            given[number],
            [*(given[number][at] for at in own), *elements, *(result[number] for result in alone)],
            shapes[number],
        )
        for number in filled
    ]
    looked_up = tuple(captured[number] for number, _ in program.looked_up)
    shared = tuple(range(len(own), extra))
    return Operands(groups, results, tuple(written), shared, extra, looked_up, captured)


def _place_among(
    result: Sequence[Tensor], given: Sequence[Sequence[Any]], own: Sequence[int], at: Sequence[int]
) -> int | None:
    """Return which tensor of every group a result is written to; None where it is none."""
    for place, number in enumerate(own):
        if all(
            _is_same(items[number], result[group]) for items, group in zip(given, at, strict=True)
        ):
            return place
    return None


def _is_same(item: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are one, in memory and in how they are walked."""
    return item is other or (
        item.data_ptr() == other.data_ptr()
        and item.dtype == other.dtype
        and item.shape == other.shape
        and item.stride() == other.stride()
    )

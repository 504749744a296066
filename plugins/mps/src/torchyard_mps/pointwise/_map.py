"""``compute``: a pointwise function over the groups of a call, several of them by a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.pointwise.contract import PointwiseCall, PointwiseRequest
from torchyard_kernels.pointwise.contract.layout import group_layout
from torchyard_mps._launch import THREADS, Launch
from torchyard_mps._runner import run
from torchyard_mps.lowering import layout_values
from torchyard_mps.pointwise._kernel import MapShape, map_source
from torchyard_mps.pointwise._operands import Group, Operands, operands_of
from torchyard_mps.pointwise._program import program_of
from torchyard_programs import NumberSteps

__all__ = ["compute", "map_launches"]

_CHUNK: Final = 1024


def compute(call: PointwiseCall) -> tuple[list[Tensor], ...]:
    """Compute ``pointwise/1``; equal calls give equal bits.

    A kernel takes as many groups as there are buffers for, since Metal reads no addresses.

    Args:
        call: of any dtype of the contract but float64, which Metal does not have. Numbers are
            computed with one another in float64, and with elements in float32.

    Raises:
        UnsupportedProgramError: the program has what kernels do not compute.
        ArithmeticError: Python has no result for a step of plain numbers.
    """
    launches, results = map_launches(call)
    for launch in launches:
        run(launch)
    return results


def map_launches(call: PointwiseCall) -> tuple[list[Launch], tuple[list[Tensor], ...]]:
    """Return the launches of a call, and the results that they fill.

    Raises:
        UnsupportedProgramError, ArithmeticError: as of :func:`compute`.
    """
    operands = operands_of(call, program_of(call.request))
    groups = operands.groups
    step = operands.most_groups if groups else 1
    launches = [
        _launch(call.request, operands, groups[start : start + step])
        for start in range(0, len(groups), step)
    ]
    return launches, operands.results


def _launch(request: PointwiseRequest, operands: Operands, groups: list[Group]) -> Launch:
    program, first = program_of(request), groups[0].tensors
    layouts = [group_layout(group.tensors, group.shape) for group in groups]
    dimensions = max(1, *(len(layout) for layout in layouts))
    table: list[int] = []
    threadgroups = 0
    for group, layout in zip(groups, layouts, strict=True):
        padded = layout + ((1, (0,) * len(first)),) * (dimensions - len(layout))
        table += [group.shape.numel(), threadgroups, *(size for size, _ in padded)]
        for operand in range(len(first)):
            table += [strides[operand] for _, strides in padded]
        table += _numbers(program.steps, group.items)
        threadgroups += -(-group.shape.numel() // _CHUNK)
    width = len(table) // len(groups)
    places = []
    for one in program.lowered:
        places.append(len(table))
        table += layout_values(one, operands.captured)
    shape = MapShape(
        operands=tuple(str(tensor.dtype).removeprefix("torch.") for tensor in first),
        written=operands.written,
        shared=operands.shared,
        slots=len(groups),
        dimensions=dimensions,
        width=width,
        layouts=tuple(places),
    )
    listed = shape.buffers()
    buffers = (
        *(groups[slot].tensors[number] for number, slot in listed),
        *operands.looked_up,
        torch.tensor(table, dtype=torch.int64, device=first[0].device),
    )
    written = [at for at, (number, _) in enumerate(listed) if number in operands.written]
    return Launch(
        map_source(request, shape),
        "pointwise_map",
        (threadgroups, 1),
        THREADS,
        buffers,
        outputs=tuple(at for at in written if listed[at][0] >= operands.extra),
        updated=tuple(at for at in written if listed[at][0] < operands.extra),
    )


def _numbers(steps: NumberSteps, items: Sequence[Any]) -> list[int]:
    """Return a group's numbers as the table holds them, floats by their bits in float32."""
    found = [item for item in items if not isinstance(item, Tensor)]
    found += steps.computed(items)
    floats = torch.tensor([item for item in found if isinstance(item, float)], dtype=torch.float32)
    bits = iter(floats.view(torch.int32).tolist())
    return [next(bits) if isinstance(item, float) else int(item) for item in found]

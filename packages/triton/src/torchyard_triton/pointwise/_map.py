"""``compute``: a pointwise function over all groups of a call, by one launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.pointwise.contract import PointwiseCall
from torchyard_kernels.pointwise.contract.layout import (
    broadcast_shape,
    device_of_call,
    on_device,
)
from torchyard_triton._frozen_tables import frozen_table
from torchyard_triton._launch import Launch
from torchyard_triton.lowering import captured_values
from torchyard_triton.pointwise._kernel import kernel_of, program_of
from torchyard_triton.pointwise._table import table_of

__all__ = ["compute", "map_launch"]


def compute(call: PointwiseCall) -> tuple[list[Tensor], ...]:
    """Compute ``pointwise/1``.

    The table of addresses is copied to the device, unless an earlier call had the same one.

    Raises:
        UnsupportedProgramError: the program has what kernels do not compute.
    """
    launch, results = map_launch(call)
    launch.run()
    return results


def map_launch(call: PointwiseCall) -> tuple[Launch, tuple[list[Tensor], ...]]:
    """Return the launch of a call, and the results that it fills."""
    # The number of groups is no part of a program.
    request = replace(call.request, groups=1)
    program = program_of(request)
    device = device_of_call(call)
    captured = on_device(call.captured, device)
    given = [on_device(items, device) for items in zip(*call.inputs, strict=True)]
    elements = captured if program.elements else []
    shapes = [broadcast_shape([*items, *captured]) for items in given]
    results: tuple[list[Tensor], ...] = tuple(list(written) for written in call.out)
    if not results:
        results = tuple(
            [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
            for dtype in program.results
        )
    groups = [
        [*items, *elements, *(result[number] for result in results)]
        for number, items in enumerate(given)
    ]
    tiles = frozen_table("pointwise/tiles.json")["default"]["map"]
    table = table_of(groups, shapes, device, tiles["block"])
    values = tuple(
        () if program.elements else captured_values(one, captured) for one in program.lowered
    )
    constants: dict[str, Any] = {
        "DIMENSIONS": table.dimensions,
        "ALIGNED": table.aligned,
        "BLOCK": tiles["block"],
        "num_warps": tiles["warps"],
    }
    arguments = table.rows, table.chunks, values
    grid = (table.chunks.shape[0],)
    return Launch(kernel_of(request), grid, arguments, constants), results

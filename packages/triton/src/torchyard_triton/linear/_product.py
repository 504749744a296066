"""``multiply``: a product with a weight, by one kernel or by two."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import LinearCall, Packed
from torchyard_kernels.linear.contract.quantised import BITS
from torchyard_triton._launch import Launch
from torchyard_triton.linear._functions import function_arguments
from torchyard_triton.linear._tiles import LinearTiles
from torchyard_triton.linear._weights import group_of, weight_arguments

__all__ = ["kind_of", "multiply", "product_launches"]

# The depth is cut into parts of this many products or more while there are fewer programs.
_PROGRAMS: Final = 128
_SHORTEST_PART: Final = 512


def kind_of(call: LinearCall) -> str:
    """Return the kind of product that tiles are chosen for: see ``linear_tiles``."""
    if isinstance(call.weight, Packed) and call.weight.spec.format in BITS:
        return "rounded"
    if call.x.dtype == torch.float32:
        return "float32"
    return "gated" if call.gated else "half"


def multiply(call: LinearCall, *, tiles: LinearTiles | None = None) -> Tensor:
    """Compute ``linear/1``; equal calls give equal bits.

    Args:
        call: of float16, bfloat16 or float32; a packed weight without rounded activations.
        tiles: None: the default.

    Raises:
        UnsupportedProgramError: a function has what kernels do not compute.
    """
    launches, out = product_launches(call, tiles=tiles)
    for launch in launches:
        launch.run()
    return out


def product_launches(
    call: LinearCall,
    *,
    tiles: LinearTiles | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[list[Launch], Tensor]:
    """Return a call's launches and the result that they fill.

    Args:
        call, tiles: as of :func:`multiply`; the bias may be of another dtype than x.
        dtype: of the result; None: as the contract has it.
    """
    from torchyard_triton.device.linear.product import linear_finish, linear_product

    x, weight = call.x, call.weight
    batched = not isinstance(weight, Packed) and weight.ndim == 3
    batch = x.shape[0] if batched else 1
    depth = x.shape[-1]
    rows = x.shape[1] if batched else math.prod(x.shape[:-1])
    outputs = weight.spec.rows if isinstance(weight, Packed) else weight.shape[-2]
    count = outputs // 2 if call.gated else outputs
    flat = x.reshape(batch, rows, depth)
    values, groups, form = weight_arguments(weight)
    tiles = (LinearTiles() if tiles is None else tiles).within(rows, group_of(weight))
    shape = call.result_shape()
    prologue, before, _ = function_arguments(call.prologue, x, x.shape)
    epilogue, after, own = function_arguments(call.epilogue, x, shape)
    out = torch.empty(shape, dtype=own if dtype is None else dtype, device=x.device)
    grid = -(-rows // tiles.rows) * -(-count // tiles.outputs), batch
    parts, span = _parts(grid[0] * batch, depth, tiles)
    sums = (
        torch.empty((parts, batch * rows, outputs), dtype=torch.float32, device=x.device)
        if parts > 1
        else out
    )
    bias = out if call.bias is None else call.bias.contiguous()
    after_constants: dict[str, Any] = {
        "BIAS": call.bias is not None,
        "EPILOGUE": epilogue,
        "GATED": call.gated,
    }
    arguments = (
        (flat, *flat.stride()),
        *(values, bias, sums, before, after, rows, count, depth, count, groups, span),
    )
    constants = {
        **form,
        **after_constants,
        "PROLOGUE": prologue,
        "PARTS": parts > 1,
        "ROWS": tiles.rows,
        "OUTPUTS": tiles.outputs,
        "DEPTH": tiles.depth,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }
    launches = [Launch(linear_product, (*grid, parts), arguments, constants)]
    if parts > 1:
        size = {"ROWS": min(16, tiles.rows), "OUTPUTS": 64, "num_warps": 4}
        total = batch * rows
        launches.append(
            Launch(
                linear_finish,
                (-(-total // size["ROWS"]), -(-count // size["OUTPUTS"])),
                (sums, bias, out, after, parts, total, count, count),
                {**after_constants, **size},
            )
        )
    return launches, out


def _parts(programs: int, depth: int, tiles: LinearTiles) -> tuple[int, int]:
    """Return how many parts the depth is cut into, and the products of each."""
    parts = tiles.parts or max(1, min(depth // _SHORTEST_PART, -(-_PROGRAMS // max(1, programs))))
    span = max(1, -(-depth // (parts * tiles.depth))) * tiles.depth
    return max(1, -(-depth // span)), span

"""The product of rows with a weight, with functions before and after it."""

from __future__ import annotations

import triton
import triton.language as tl

from torchyard_triton.device.linear.weights import weight_tile
from torchyard_triton.device.matmul import matmul

__all__ = ["finished", "linear_finish", "linear_product"]


@triton.jit
def finished(
    total,
    up,
    bias,
    after,
    rows,
    outputs,
    half,
    inside,
    BIAS: tl.constexpr,
    EPILOGUE: tl.constexpr,
    GATED: tl.constexpr,
):
    """Return what a tile of sums becomes: with the bias, then through the epilogue."""
    if BIAS:
        columns = inside & (rows >= 0)
        total += tl.load(bias + outputs + rows * 0, mask=columns, other=0.0).to(tl.float32)
        if GATED:
            up += tl.load(bias + outputs + half + rows * 0, mask=columns, other=0.0).to(tl.float32)
    if EPILOGUE is None:
        return total
    elif GATED:
        return EPILOGUE(total, up, rows, outputs, inside, after)
    else:
        return EPILOGUE(total, rows, outputs, inside, after)


@triton.jit
def linear_product(
    x,
    weight,
    bias,
    out,
    before,
    after,
    row_count,
    output_count,
    depth_count,
    half,
    groups,
    span,
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ZEROS: tl.constexpr,
    BIAS: tl.constexpr,
    PROLOGUE: tl.constexpr,
    EPILOGUE: tl.constexpr,
    GATED: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Compute a tile of out = EPILOGUE(PROLOGUE(x) W^T + bias); where PARTS, of a part of the sums.

    Grid: tiles of rows times tiles of outputs, batch, parts of the depth.

    Args:
        x: (pointer, batch stride, row stride, column stride).
        weight: see ``weights``. bias: [N], read where BIAS.
        out: [B, M, N or half] contiguous; where PARTS float32 [parts, B, M, N].
        before, after: what the functions captured, see ``torchyard_triton.linear``.
        row_count, depth_count: M, K. output_count: N, or half of it where GATED.
        half: how far the second half is from the first, where GATED.
        groups: scales of an output. span: products of a part, a multiple of DEPTH.
    """
    tile, batch, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row_tiles = tl.cdiv(row_count, ROWS)
    # Programs side by side read the same outputs' weights.
    rows = ((tile % row_tiles) * ROWS + tl.arange(0, ROWS))[:, None]
    outputs = ((tile // row_tiles) * OUTPUTS + tl.arange(0, OUTPUTS))[None, :]
    dtype: tl.constexpr = x[0].dtype.element_ty
    x_rows = x[0] + batch.to(tl.int64) * x[1] + rows.to(tl.int64) * x[2]
    all_rows = batch.to(tl.int64) * row_count + rows
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    up = total
    first = part * span
    for start in range(first, tl.minimum(first + span, depth_count), DEPTH):
        columns = (start + tl.arange(0, DEPTH))[None, :]
        there = (rows < row_count) & (columns < depth_count)
        values = tl.load(x_rows + columns.to(tl.int64) * x[3], mask=there, other=0.0)
        if PROLOGUE is not None:
            values = PROLOGUE(values.to(tl.float32), all_rows, columns, there, before).to(dtype)
            values = tl.where(there, values, 0.0).to(dtype)
        depth = (start + tl.arange(0, DEPTH))[:, None]
        inside = (depth < depth_count) & (outputs < output_count)
        tile_of = weight_tile(
            *(weight, batch, depth, outputs, inside, start, groups, FORM, GROUP, ZEROS, dtype)
        )
        total = matmul(values, tile_of, total)
        if GATED:
            tile_of = weight_tile(
                *(weight, batch, depth, outputs + half, inside, start, groups),
                *(FORM, GROUP, ZEROS, dtype),
            )
            up = matmul(values, tile_of, up)
    inside = (rows < row_count) & (outputs < output_count)
    if PARTS:
        width = output_count * 2 if GATED else output_count
        at = (part.to(tl.int64) * tl.num_programs(1) * row_count + all_rows) * width + outputs
        tl.store(out + at, total, mask=inside)
        if GATED:
            tl.store(out + at + half, up, mask=inside)
    else:
        result = finished(
            total, up, bias, after, all_rows, outputs, half, inside, BIAS, EPILOGUE, GATED
        )
        at = all_rows * output_count + outputs
        tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def linear_finish(
    parts,
    bias,
    out,
    after,
    part_count,
    row_count,
    output_count,
    half,
    BIAS: tl.constexpr,
    EPILOGUE: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """Add the parts of the sums, from the first to the last, and finish them.

    Grid: tiles of rows, tiles of outputs.

    Args:
        parts: float32 [parts, rows, N]. out: [rows, N or half], both contiguous.
        row_count: of all batches. Others as of ``linear_product``.
    """
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    outputs = (tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS))[None, :]
    inside = (rows < row_count) & (outputs < output_count)
    width = output_count * 2 if GATED else output_count
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    up = total
    for part in range(part_count):
        at = parts + (tl.full((), 0, tl.int64) + part) * row_count * width + rows * width + outputs
        total += tl.load(at, mask=inside, other=0.0)
        if GATED:
            up += tl.load(at + half, mask=inside, other=0.0)
    result = finished(total, up, bias, after, rows, outputs, half, inside, BIAS, EPILOGUE, GATED)
    tl.store(out + rows * output_count + outputs, result.to(out.dtype.element_ty), mask=inside)

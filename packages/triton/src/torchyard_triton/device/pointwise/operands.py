"""Elements of a group's operands, whose addresses and strides a table holds.

A table has a row of int64 for each group: the number of elements; of each operand the address, or
the bits of a number; the sizes of DIMENSIONS dimensions, the innermost first; of each operand its
strides, likewise. DIMENSIONS 0: every operand has its elements side by side in one order.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["chunk_of", "element", "number", "put"]


@triton.jit
def chunk_of(
    table,
    chunks,
    OPERANDS: tl.constexpr,
    DIMENSIONS: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return this program's row of the table, its elements, and whether they are there.

    Args:
        chunks: int64 [programs, 2]: the group, and how many chunks of it are before this one.
        ALIGNED: whether addresses, and numbers of elements, are multiples of 16.
    """
    chunk = chunks + 2 * tl.program_id(0).to(tl.int64)
    WIDTH: tl.constexpr = 1 + OPERANDS + DIMENSIONS * (1 + OPERANDS)
    row = table + tl.load(chunk) * WIDTH
    count = tl.load(row)
    if ALIGNED:
        # The compiler sees the multiple, and loads several elements at once.
        count = count // 16 * 16
    at = tl.load(chunk + 1) * BLOCK + tl.arange(0, BLOCK)
    return row, at, at < count


@triton.jit
def _place(row, at, OPERAND: tl.constexpr, OPERANDS: tl.constexpr, DIMENSIONS: tl.constexpr):
    """Return how far elements of an operand are from its first."""
    if DIMENSIONS == 0:
        return at
    else:
        place = at * 0
        rest = at
        for dimension in tl.static_range(DIMENSIONS):
            index = rest
            if dimension + 1 < DIMENSIONS:
                size = tl.load(row + (1 + OPERANDS + dimension))
                index = rest % size
                rest = rest // size
            stride = tl.load(row + (1 + OPERANDS + DIMENSIONS * (1 + OPERAND) + dimension))
            place += index * stride
        return place


@triton.jit
def _pointer(row, OPERAND: tl.constexpr, dtype: tl.constexpr, ALIGNED: tl.constexpr):
    pointer = tl.load(row + (1 + OPERAND)).to(tl.pointer_type(dtype))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def element(
    row,
    at,
    inside,
    OPERAND: tl.constexpr,
    OPERANDS: tl.constexpr,
    DIMENSIONS: tl.constexpr,
    dtype: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Return elements of an operand; half precisions as float32, truth values, stored as int8."""
    pointer = _pointer(row, OPERAND, dtype, ALIGNED)
    place = _place(row, at, OPERAND, OPERANDS, DIMENSIONS)
    value = tl.load(pointer + place, mask=inside, other=0)
    if dtype == tl.float16 or dtype == tl.bfloat16:
        value = value.to(tl.float32)
    return value


@triton.jit
def number(row, OPERAND: tl.constexpr, KIND: tl.constexpr):
    """Return a group's number: float64, int64 or a truth value."""
    bits = tl.load(row + (1 + OPERAND))
    if KIND == "float":
        return bits.to(tl.float64, bitcast=True)
    elif KIND == "bool":
        return bits != 0
    else:
        return bits


@triton.jit
def put(
    row,
    at,
    inside,
    value,
    OPERAND: tl.constexpr,
    OPERANDS: tl.constexpr,
    DIMENSIONS: tl.constexpr,
    dtype: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Store results, converted to the operand's dtype."""
    pointer = _pointer(row, OPERAND, dtype, ALIGNED)
    place = _place(row, at, OPERAND, OPERANDS, DIMENSIONS)
    tl.store(pointer + place, value.to(dtype), mask=inside)

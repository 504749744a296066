"""The kernel of a program: it loads a chunk's operands, computes every result, and stores them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch

from torchyard_kernels.pointwise.contract import NUMBERS, PointwiseRequest
from torchyard_programs import Input, Traits, is_pointwise, parse
from torchyard_triton.elementwise import ElementProgram, element_program

__all__ = ["STORED", "kernel_of", "program_of"]

# What operands may hold.
STORED: Final = (
    *("float32", "float64", "float16", "bfloat16", "bool"),
    *("uint8", "int8", "int16", "int32", "int64"),
)


@lru_cache(maxsize=1024)
def program_of(request: PointwiseRequest) -> ElementProgram:
    """Return a request's program.

    Raises:
        UnsupportedProgramError: names what is not computed.
    """
    inputs = tuple(
        Input(
            f"x{number}",
            NUMBERS[name] if ndim < 0 else getattr(torch, name),
            max(ndim, 0),
        )
        for number, (name, ndim) in enumerate(request.inputs)
    )
    captured: Traits = tuple((getattr(torch, name), ndim) for name, ndim in request.captured)
    one_each = tuple((dtype, 0) for dtype, _ in captured)
    elements = is_pointwise(parse(request.text), inputs, one_each)
    return element_program(request.text, inputs, captured, elements=elements)


@lru_cache(maxsize=1024)
def kernel_of(request: PointwiseRequest) -> Any:
    """Return the jit function ``(table, chunks, captured, DIMENSIONS, ALIGNED, BLOCK)``."""
    program = program_of(request)
    operands = [*request.inputs, *(request.captured if program.elements else ())]
    stored = request.out or tuple(str(dtype)[6:] for dtype in program.results)
    count = len(operands) + len(stored)
    constants = "DIMENSIONS: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr"
    lines = [
        f"@triton.jit\ndef pointwise_map(table, chunks, captured, {constants}):",
        f"row, at, inside = operands.chunk_of(table, chunks, {count}, DIMENSIONS, ALIGNED, BLOCK)",
    ]
    for place, (name, ndim) in enumerate(operands):
        if ndim < 0:
            lines.append(f'v{place} = operands.number(row, {place}, "{name}")')
            continue
        lines.append(
            f"v{place} = operands.element(row, at, inside, {place}, {count}, DIMENSIONS, "
            f"tl.{_memory(name)}, ALIGNED)" + (" != 0" if name == "bool" else "")
        )
    values = ", ".join(f"v{place}" for place in range(len(operands)))
    for number in range(len(stored)):
        lines.append(f"r{number} = program{number}({values}, captured[{number}])")
    for number, name in enumerate(stored):
        lines.append(
            f"operands.put(row, at, inside, r{number}, {len(operands) + number}, {count}, "
            f"DIMENSIONS, tl.{_memory(name)}, ALIGNED)"
        )
    text = "from torchyard_triton.device.pointwise import operands\n\n" + "\n    ".join(lines)
    return program.module(f"{text}\n").pointwise_map


def _memory(name: str) -> str:
    return "int8" if name == "bool" else name

"""``lower``: a recorded program as the source of a Metal function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import torch
from torch import Tensor

from torchyard_mps._launch import metal_text
from torchyard_mps.lowering._emission import Layout, function_text, type_of
from torchyard_programs import Input, Traits, program_graph

__all__ = ["LoweredProgram", "header", "layout_values", "lower"]

# In this order: each uses what is before it.
_LIBRARY: Final = ("rounding", "elementary", "special")


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """A program as Metal source. Equal structure gives equal source, whatever is captured.

    Attributes:
        name: of the function.
        source: its text, which follows ``header()``.
        tensors: (number, type in Metal, dimensions) of the captured tensors that it reads. The
            function takes after its inputs a pointer for each, then ``layout``: sizes and strides
            of each, in elements.
    """

    name: str
    source: str
    tensors: tuple[tuple[int, str, int], ...]


@cache
def header() -> str:
    """Return the functions that lowered programs call, and the names that they come from."""
    # Programs compute with NaN and infinities, which Metal's fast mathematics assumes away.
    top = (
        "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\n"
        "#pragma METAL fp math_mode(safe)\nusing namespace metal;\n"
    )
    return f"{top}\n{metal_text(*_LIBRARY)}"


@lru_cache(maxsize=1024)
def lower(
    text: str,
    inputs: tuple[Input, ...],
    captured: Traits,
    *,
    name: str = "program",
    result: str,
    ranges: tuple[tuple[str, int, int], ...] = (),
) -> LoweredProgram:
    """Return a program as the source of a Metal function.

    Args:
        text: the program.
        inputs: its inputs, the function's first parameters.
        captured: dtype and number of dimensions of each captured tensor.
        name: of the function.
        result: dtype of the result, by torch's name.
        ranges: (name, least, greatest) of int64 inputs that the function is given as int.

    Raises:
        UnsupportedProgramError: names what is not computed: float64, which Metal does not have, or
            a step that has no graph.
        TypeError, ValueError: an argument does not fit the program; names it.
    """
    found = program_graph(text, inputs, captured, result=result, ranges=ranges)
    narrow = {of for of, _, _ in ranges}
    layout: Layout = {}
    place = 0
    tensors = []
    for number in found.tensors:
        dtype, ndim = captured[number]
        tensors.append((number, type_of(str(dtype).removeprefix("torch.")), ndim))
        layout[number] = place, ndim
        place += 2 * ndim
    parameters = [
        f"{'int' if item.name in narrow else _input_type(item)} {item.name}" for item in inputs
    ]
    parameters += [f"device const {kind}* c{number}" for number, kind, _ in tensors]
    parameters.append("constant long* layout")
    source = function_text(name, found.graph, ", ".join(parameters), result, layout)
    return LoweredProgram(name, source, tuple(tensors))


def _input_type(item: Input) -> str:
    dtype = item.dtype
    if isinstance(dtype, torch.dtype):
        return type_of(str(dtype).removeprefix("torch."))
    return type_of({bool: "bool", int: "int64", float: "float64"}[dtype])


def layout_values(program: LoweredProgram, captured: tuple[Tensor, ...]) -> list[int]:
    """Return what a program's function takes as ``layout``; one number where that is none."""
    values: list[int] = []
    for number, _, _ in program.tensors:
        values += [*captured[number].shape, *captured[number].stride()]
    return values or [0]

"""``lower``: a recorded program as the source of a Metal function."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final

import torch
from torch import Tensor

from torchyard_mps._launch import PREAMBLE, metal_text
from torchyard_mps.lowering._emission import FLOATS, Layout, function_text, place_text, type_of
from torchyard_programs import Graph, Input, Traits, UnsupportedProgramError, program_graph

__all__ = ["LoweredProgram", "LoweredSite", "header", "layout_values", "lower", "type_of_dtype"]

# In this order: each uses what is before it.
_LIBRARY: Final = ("rounding", "elementary", "special")


@dataclass(frozen=True, slots=True)
class LoweredSite:
    """Where a captured tensor is read whose gradient is wanted.

    Attributes:
        weight, place: names of the functions that return d result / d element, float32, and the
            element's place in the tensor's logical order, int64, -1 outside of the tensor.
        tensor: the tensor's number.
        inputs: names of the inputs that the place depends on.
    """

    weight: str
    place: str
    tensor: int
    inputs: frozenset[str]


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """A program as Metal source. Equal structure gives equal source, whatever is captured.

    Attributes:
        name: of the function.
        source: its text, which follows ``header()``.
        tensors: (number, type in Metal, dimensions) of the captured tensors that it reads. The
            function takes after its inputs a pointer for each, then ``layout``: sizes and strides
            of each, in elements. So do the functions of derivatives.
        slope: name of the function that returns the derivative by the input that was asked for,
            float32; empty where none was.
        sites: where captured tensors are read whose gradients are wanted.
    """

    name: str
    source: str
    tensors: tuple[tuple[int, str, int], ...]
    slope: str = ""
    sites: tuple[LoweredSite, ...] = ()


@cache
def header() -> str:
    """Return the functions that lowered programs call, and the names that they come from."""
    return f"{PREAMBLE}\n{metal_text(*_LIBRARY)}"


@lru_cache(maxsize=1024)
def lower(
    text: str,
    inputs: tuple[Input, ...],
    captured: Traits,
    *,
    name: str = "program",
    result: str,
    derivative: str = "",
    wanted: tuple[int, ...] = (),
    ranges: tuple[tuple[str, int, int], ...] = (),
) -> LoweredProgram:
    """Return a program as the source of Metal functions.

    Args:
        text: the program.
        inputs: its inputs, the function's first parameters; a plain float number is given as float.
        captured: dtype and number of dimensions of each captured tensor.
        name: of the function.
        result: dtype of the result, by torch's name.
        derivative: name of the input by which the derivative is wanted; empty: of none.
        wanted: numbers of captured tensors whose gradients are wanted.
        ranges: (name, least, greatest) of int64 inputs that the function is given as int.

    Raises:
        UnsupportedProgramError: names what is not computed: float64, which Metal does not have, or
            a step that has no graph.
        TypeError, ValueError: an argument does not fit the program; names it.
    """
    found = program_graph(
        text,
        inputs,
        captured,
        result=result,
        derivatives=(derivative,) if derivative else (),
        wanted=wanted,
        ranges=ranges,
    )
    narrow = {of for of, _, _ in ranges}
    layout: Layout = {}
    place = 0
    tensors = []
    for number in found.tensors:
        dtype, ndim = captured[number]
        tensors.append((number, type_of_dtype(dtype), ndim))
        layout[number] = place, ndim
        place += 2 * ndim
    listed = [
        f"{'int' if item.name in narrow else _input_type(item)} {item.name}" for item in inputs
    ]
    listed += [f"device const {kind}* c{number}" for number, kind, _ in tensors]
    parameters = ", ".join([*listed, "constant long* layout"])
    # A copy: the graph is shared, and gets one more node.
    graph = found.graph.copy()
    _narrow_numbers(graph, frozenset(item.name for item in inputs if item.dtype is float))
    parts = [function_text(name, graph, parameters, graph.result, result, layout)]
    slope, sites = "", []
    if derivative:
        slope = f"{name}_slope"
        (by_input,) = found.slopes
        node = graph.constant(0.0, "float32") if by_input is None else by_input
        parts.append(function_text(slope, graph, parameters, node, "float32", layout))
    for index, site in enumerate(found.sites):
        weight, at = f"{name}_weight{index}", f"{name}_place{index}"
        parts.append(function_text(weight, graph, parameters, site.weight, "float32", layout))
        parts.append(place_text(at, graph, parameters, site.tensor, site.indices, layout))
        sites.append(LoweredSite(weight, at, site.tensor, _inputs_of(graph, site.indices)))
    return LoweredProgram(name, "\n".join(parts), tuple(tensors), slope, tuple(sites))


def _inputs_of(graph: Graph, numbers: tuple[int, ...]) -> frozenset[str]:
    """Return names of the inputs that some nodes depend on."""
    nodes = (graph.nodes[number] for number in graph.needed(numbers))
    return frozenset(str(node.data) for node in nodes if node.op == "input")


def type_of_dtype(dtype: torch.dtype) -> str:
    """Return the type of Metal that holds elements of a dtype.

    Raises:
        UnsupportedProgramError: none does.
    """
    return type_of(str(dtype).removeprefix("torch."))


def _input_type(item: Input) -> str:
    dtype = item.dtype
    if isinstance(dtype, torch.dtype):
        return type_of_dtype(dtype)
    return type_of({bool: "bool", int: "int64", float: "float32"}[dtype])


def _narrow_numbers(graph: Graph, names: frozenset[str]) -> None:
    """Replace numbers of float64, which Metal does not have, by what they are rounded to.

    Raises:
        UnsupportedProgramError: a number is used as another dtype than one that float32 holds.
    """
    numbers = {
        number
        for number, node in enumerate(graph.nodes)
        if node.op == "input" and node.data in names
    }
    for number in numbers:
        graph.nodes[number] = replace(graph.nodes[number], dtype="float32")
    for node in graph.nodes:
        if numbers.intersection(node.args) and (node.op != "cast" or node.dtype not in FLOATS):
            raise UnsupportedProgramError("a number as float64, which Metal does not have")


def layout_values(program: LoweredProgram, captured: tuple[Tensor, ...]) -> list[int]:
    """Return what a program's function takes as ``layout``; one number where that is none."""
    values: list[int] = []
    for number, _, _ in program.tensors:
        values += [*captured[number].shape, *captured[number].stride()]
    return values or [0]

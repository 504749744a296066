"""``lower``: a recorded program as the source of Triton functions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor

from torchyard_programs import Graph, Input, Site, Traits, program_graph
from torchyard_triton.lowering._emission import FLOAT64_FUNCTIONS, HEADER, Layout, function_text
from torchyard_triton.lowering._modules import module_of

__all__ = ["LoweredProgram", "LoweredSite", "captured_values", "lower"]


@dataclass(frozen=True, slots=True)
class LoweredSite:
    """Where a captured tensor is read whose gradient is wanted.

    Attributes:
        function: name of the function that returns (d result / d element, the element's place in
            the tensor's logical order, -1 outside of the tensor).
        tensor: the tensor's number.
        inputs: names of the inputs that the place depends on.
    """

    function: str
    tensor: int
    inputs: frozenset[str]


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """A program as Triton source. Equal structure gives equal source, whatever is captured.

    Attributes:
        name: of the function that computes the program, of the inputs and ``captured``.
        source: a Python module's text.
        key: hash of the source.
        tensors: ``(number, dimensions)`` of the captured tensors that it reads, in the order in
            which ``captured`` holds a pointer, sizes and strides of each.
        slope: name of the function that returns the derivatives by the inputs that were asked for;
            empty where none was.
        sites: where captured tensors are read whose gradients are wanted.
    """

    name: str
    source: str
    key: str
    tensors: tuple[tuple[int, int], ...]
    slope: str = ""
    sites: tuple[LoweredSite, ...] = ()

    def function(self, name: str = "") -> Any:
        """Return a jit function of the source; that of the program where no name is given."""
        return getattr(module_of(self.key, self.source), name or self.name)


def lower(
    text: str,
    inputs: tuple[Input, ...],
    captured: Traits,
    *,
    name: str = "program",
    result: str | None = None,
    derivatives: tuple[str, ...] = (),
    wanted: tuple[int, ...] = (),
    ranges: tuple[tuple[str, int, int], ...] = (),
) -> LoweredProgram:
    """Return a program as the source of Triton functions.

    Does not import triton. All words of the vocabulary of ``torchyard_programs`` are computed, in
    the dtypes of torch's promotion of scalars; float64 where Triton's language has the function.

    Args:
        text: the program.
        inputs: its inputs, which become the function's first parameters.
        captured: dtype and number of dimensions of each captured tensor.
        name: of the function.
        result: dtype of the result; None: the program's own.
        derivatives: names of inputs by which derivatives are wanted.
        wanted: numbers of captured tensors whose gradients are wanted.
        ranges: (name, least, greatest) of int64 inputs that the function is given as int32. What is
            proved to fit is then computed in int32; results are the same.

    Raises:
        UnsupportedProgramError: names the operation, dtype or argument that is not computed.
        TypeError, ValueError: an argument does not fit the program; names it.
    """
    return _lowered(text, inputs, captured, name, result, derivatives, wanted, ranges)


@lru_cache(maxsize=1024)
def _lowered(
    text: str,
    inputs: tuple[Input, ...],
    captured: Traits,
    name: str,
    result: str | None,
    derivatives: tuple[str, ...],
    wanted: tuple[int, ...],
    ranges: tuple[tuple[str, int, int], ...],
) -> LoweredProgram:
    found = program_graph(
        text,
        inputs,
        captured,
        result=result,
        derivatives=derivatives,
        wanted=wanted,
        ranges=ranges,
        float64_functions=FLOAT64_FUNCTIONS,
    )
    # A copy: the graph is shared, and gets one more node.
    graph = found.graph.copy()
    parameters = tuple(item.name for item in inputs)
    tensors = tuple((number, captured[number][1]) for number in found.tensors)
    layout: Layout = {}
    place = 0
    for number, ndim in tensors:
        layout[number] = place, ndim
        place += 1 + 2 * ndim
    parts = [HEADER, function_text(name, graph, parameters, (graph.result,), layout)]
    slope, sites = "", []
    if derivatives:
        slope = f"{name}_slope"
        zero = graph.constant(0.0, "float32")
        numbers = tuple(zero if item is None else item for item in found.slopes)
        parts.append(function_text(slope, graph, parameters, numbers, layout))
    for index, site in enumerate(found.sites):
        function = f"{name}_site{index}"
        place_text = _place_text(function, graph, parameters, site, layout)
        parts.append(place_text)
        names = frozenset(
            str(graph.nodes[number].data)
            for number in graph.needed(site.indices)
            if graph.nodes[number].op == "input"
        )
        sites.append(LoweredSite(function, site.tensor, names))
    source = "\n\n".join(parts)
    key = hashlib.sha256(source.encode()).hexdigest()[:24]
    return LoweredProgram(name, source, key, tensors, slope, tuple(sites))


def _place_text(
    function: str, graph: Graph, parameters: tuple[str, ...], site: Site, layout: Layout
) -> str:
    """Return the function of a site: its weight, and its place in the tensor's logical order."""
    place, _ = layout[site.tensor]
    text = function_text(function, graph, parameters, (site.weight, *site.indices), layout)
    body, _, returned = text.rstrip().rpartition("\n    return ")
    weight, *indices = returned.split(", ")
    lines = ["offset = tl.full((), 0, tl.int64)", "inside = tl.full((), True, tl.int1)"]
    for dimension, index in enumerate(indices):
        size = f"captured[{place + 1 + dimension}]"
        lines.append(f"at{dimension} = tl.where({index} < 0, {index} + {size}, {index})")
        lines.append(f"inside = inside & (at{dimension} >= 0) & (at{dimension} < {size})")
        lines.append(f"offset = offset * {size} + at{dimension}.to(tl.int64)")
    lines.append(f"return {weight}, tl.where(inside, offset, -1)")
    return "\n    ".join([body, *lines]) + "\n"


def captured_values(program: LoweredProgram, captured: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return what a program's functions take as ``captured``."""
    values: list[Any] = []
    for number, _ in program.tensors:
        tensor = captured[number]
        values += [tensor, *tensor.shape, *tensor.stride()]
    return tuple(values)

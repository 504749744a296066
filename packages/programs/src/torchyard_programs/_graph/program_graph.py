"""``program_graph``: a program as typed operations on single elements, for any language."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from torchyard_programs._graph import activations, arithmetic, functions  # noqa: F401
from torchyard_programs._graph.derivative import Site, differentiate
from torchyard_programs._graph.graph import Graph, UnsupportedProgramError
from torchyard_programs._graph.lowering import Lowering, lacking
from torchyard_programs._graph.narrowing import narrowed
from torchyard_programs._program.inference import Input, Traits

__all__ = ["ProgramGraph", "program_graph"]


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    """A program's graph, not to be changed.

    Attributes:
        graph: its nodes, and those of its derivatives.
        slopes: of each input that was asked for, the node that is d result / d input; None where
            that is 0.
        sites: where captured tensors are read whose gradients are wanted.
        tensors: numbers of the captured tensors that the program reads, in order.
    """

    graph: Graph
    slopes: tuple[int | None, ...] = ()
    sites: tuple[Site, ...] = ()
    tensors: tuple[int, ...] = ()


@lru_cache(maxsize=1024)
def program_graph(
    text: str,
    inputs: tuple[Input, ...],
    captured: Traits,
    *,
    result: str | None = None,
    derivatives: tuple[str, ...] = (),
    wanted: tuple[int, ...] = (),
    ranges: tuple[tuple[str, int, int], ...] = (),
    float64_functions: frozenset[str] = frozenset(),
) -> ProgramGraph:
    """Return a program as a graph, in the dtypes of torch's promotion of scalars.

    What writes kernels in a language starts here: nodes are operators, conversions, loads from
    captured tensors, and calls of functions by torch's names, which the language has or is given.

    Args:
        text: the program.
        inputs: its inputs.
        captured: dtype and number of dimensions of each captured tensor.
        result: dtype of the result, by torch's name; None: the program's own.
        derivatives: names of floating point inputs by which derivatives are wanted.
        wanted: numbers of captured tensors whose gradients are wanted.
        ranges: (name, least, greatest) of int64 inputs that kernels have as int32. What is proved
            to fit is then int32; results are the same.
        float64_functions: names of the functions that the language computes in float64, as nodes
            call them. What calls another one on float64 is refused.

    Raises:
        UnsupportedProgramError: names the operation, dtype or argument that has no node.
        TypeError, ValueError: an argument does not fit the program; names it.
    """
    graph = Lowering(text, inputs, captured, float64_functions).run(result)
    if ranges:
        graph = narrowed(graph, {of: (least, greatest) for of, least, greatest in ranges})
    needed = [graph.nodes[number] for number in graph.needed((graph.result,))]
    tensors = tuple(sorted({int(str(node.data)) for node in needed if node.op == "load"}))
    if not derivatives and not wanted:
        return ProgramGraph(graph, tensors=tensors)
    found = differentiate(graph, derivatives, frozenset(wanted))
    if name := lacking(found.graph, len(graph.nodes), float64_functions):
        raise UnsupportedProgramError(f"{name} of float64, which a derivative calls")
    return ProgramGraph(found.graph, found.slopes, found.sites, tensors)

"""``program_graph``: a program as typed operations on single elements, for any language."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from torchyard_programs import Input, Traits
from torchyard_triton.lowering import _activations, _arithmetic, _functions  # noqa: F401
from torchyard_triton.lowering._derivative import differentiate
from torchyard_triton.lowering._graph import Graph
from torchyard_triton.lowering._lowering import Lowering
from torchyard_triton.lowering._narrowing import narrowed

__all__ = ["ProgramGraph", "program_graph"]


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    """A program's graph, not to be changed.

    Attributes:
        graph: its nodes, and those of its derivatives.
        slopes: of each input that was asked for, the node that is d result / d input; None where
            that is 0.
    """

    graph: Graph
    slopes: tuple[int | None, ...] = ()


@lru_cache(maxsize=1024)
def program_graph(
    text: str,
    inputs: tuple[Input, ...],
    captured: Traits,
    *,
    result: str | None = None,
    derivatives: tuple[str, ...] = (),
    ranges: tuple[tuple[str, int, int], ...] = (),
) -> ProgramGraph:
    """Return a program's graph; arguments and errors as of ``torchyard_triton.lower``.

    A library whose kernels take functions in another language starts here.
    """
    graph = Lowering(text, inputs, captured).run(result)
    if ranges:
        graph = narrowed(graph, {of: (least, greatest) for of, least, greatest in ranges})
    if not derivatives:
        return ProgramGraph(graph)
    found = differentiate(graph, derivatives, frozenset())
    return ProgramGraph(found.graph, found.slopes)

"""A recorded program as functions that FlashAttention-4 takes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_cuda.fa4._emission import HEADER, function_text
from torchyard_programs import Graph, Input, Traits, UnsupportedProgramError, program_graph
from torchyard_triton.lowering import module_of

__all__ = ["INPUTS", "CutePrograms", "auxiliary", "lower_mask", "lower_score"]

INPUTS: Final = (
    Input("s", torch.float32),
    *(Input(name, torch.int64) for name in ("b", "h", "q", "k")),
)
# Indices are int32 in FlashAttention-4.
_RANGES: Final = (
    ("b", 0, 2**20 - 1),
    ("h", 0, 2**20 - 1),
    ("q", 0, 2**28 - 1),
    ("k", 0, 2**28 - 1),
)
_MASK: Final = ("b", "h", "q_idx", "kv_idx", "seqlen_info", "aux_tensors")
_SCORE: Final = ("s", *_MASK)


@dataclass(frozen=True, slots=True)
class CutePrograms:
    """A program as the source of functions in CuTe DSL.

    Attributes:
        source: a Python module's text; equal structure gives equal source.
        key: hash of the source.
        tensors: numbers of the captured tensors that are read, in the order of ``aux_tensors``.
        names: of the functions: the program, and what multiplies a gradient by its derivative.
        inputs: names of the inputs that are read, such as ``h``.
    """

    source: str
    key: str
    tensors: tuple[int, ...]
    names: tuple[str, ...]
    inputs: frozenset[str]

    def functions(self) -> tuple[Any, ...]:
        """Return the functions; imports cutlass."""
        module = module_of(self.key, self.source)
        return tuple(getattr(module, name) for name in self.names)


@lru_cache(maxsize=1024)
def lower_score(text: str, captured: Traits, *, first: int = 0) -> CutePrograms:
    """Return a score_mod of ``s b h q k`` as score_mod and score_mod_bwd.

    Args:
        text: the program.
        captured: dtype and number of dimensions of each captured tensor.
        first: place in ``aux_tensors`` of the first tensor that is read.

    Raises:
        UnsupportedProgramError: names what has no form in CuTe DSL.
    """
    found = program_graph(
        text, INPUTS, captured, result="float32", derivatives=("s",), ranges=_RANGES
    )
    graph, (slope,) = found.graph, found.slopes
    if slope is None:
        graph = graph.copy()
        slope = graph.constant(0.0, "float32")
    tensors = _read(graph, (graph.result, slope))
    places = _places(tensors, first)
    score = function_text("score", _SCORE, graph, graph.result, places, like="s")
    gradient = function_text(
        "gradient", ("grad", *_SCORE), graph, slope, places, like="s", scaled_by="grad"
    )
    inputs = _inputs(graph, (graph.result, slope))
    return _programs((score, gradient), tensors, ("score", "gradient"), inputs)


@lru_cache(maxsize=1024)
def lower_mask(text: str, captured: Traits, *, first: int = 0) -> CutePrograms:
    """Return a mask_mod of ``b h q k`` as mask_mod. Arguments and errors as of lower_score.

    It shows the pairs that the mask's bits show, which other implementations read: what a compiler
    may round in another way is refused too.
    """
    graph = program_graph(text, INPUTS[1:], captured, result="bool", ranges=_RANGES).graph
    if node := graph.rounded():
        name = node.data if node.op == "call" else node.op
        raise UnsupportedProgramError(
            f"{name} of {node.dtype}, whose rounding decides what is visible"
        )
    tensors = _read(graph, (graph.result,))
    places = _places(tensors, first)
    mask = function_text("mask", _MASK, graph, graph.result, places, like="kv_idx")
    return _programs((mask,), tensors, ("mask",), _inputs(graph, (graph.result,)))


def auxiliary(programs: CutePrograms, captured: Sequence[Tensor]) -> list[Tensor]:
    """Return what is passed as ``aux_tensors`` of a program, from its captured tensors."""
    found = []
    for number in programs.tensors:
        tensor = captured[number].detach()
        tensor = tensor.reshape(1) if tensor.ndim == 0 else tensor
        found.append(tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor)
    return found


def _read(graph: Graph, results: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of the captured tensors that some results read."""
    nodes = (graph.nodes[number] for number in graph.needed(results))
    return tuple(sorted({int(str(node.data)) for node in nodes if node.op == "load"}))


def _inputs(graph: Graph, results: tuple[int, ...]) -> frozenset[str]:
    """Return the names of the inputs that some results read."""
    nodes = (graph.nodes[number] for number in graph.needed(results))
    return frozenset(str(node.data) for node in nodes if node.op == "input")


def _places(tensors: tuple[int, ...], first: int) -> dict[int, int]:
    return {number: first + place for place, number in enumerate(tensors)}


def _programs(
    functions: tuple[str, ...],
    tensors: tuple[int, ...],
    names: tuple[str, ...],
    inputs: frozenset[str],
) -> CutePrograms:
    source = "\n\n".join((HEADER, *functions))
    key = hashlib.sha256(source.encode()).hexdigest()[:24]
    return CutePrograms(source, key, tensors, names, inputs)

"""Recorded programs as the source of Triton functions, and as graphs for other languages."""

from __future__ import annotations

from torchyard_triton.lowering._graph import FLOATS, Graph, Node, UnsupportedProgramError
from torchyard_triton.lowering._modules import module_of
from torchyard_triton.lowering._program import (
    LoweredProgram,
    LoweredSite,
    captured_values,
    lower,
)
from torchyard_triton.lowering._program_graph import ProgramGraph, program_graph

__all__ = [
    "FLOATS",
    "Graph",
    "LoweredProgram",
    "LoweredSite",
    "Node",
    "ProgramGraph",
    "UnsupportedProgramError",
    "captured_values",
    "lower",
    "module_of",
    "program_graph",
]

"""Pointwise Python functions, recorded as programs that kernels evaluate tile by tile."""

from __future__ import annotations

from torchyard_programs._cache.recordings import Recordings
from torchyard_programs._captured import is_readable_on, stored
from torchyard_programs._derivatives import is_transformed, pullback, pushforward
from torchyard_programs._errors import ProgramError
from torchyard_programs._graph.derivative import Site
from torchyard_programs._graph.graph import INFIX, Graph, Node, UnsupportedProgramError
from torchyard_programs._graph.program_graph import ProgramGraph, program_graph
from torchyard_programs._graph.ties import divides_ties
from torchyard_programs._program.build import build
from torchyard_programs._program.elements import ElementPrograms, element_programs
from torchyard_programs._program.inference import Input, Traits, infer, is_pointwise
from torchyard_programs._program.numbers import NumberSteps, number_steps
from torchyard_programs._program.program import Operation, Program, Reference, parse
from torchyard_programs._program.typed import Step, TypedProgram, typed_program
from torchyard_programs._recording.tracer import result_count, trace

__all__ = [
    "INFIX",
    "ElementPrograms",
    "Graph",
    "Input",
    "Node",
    "NumberSteps",
    "Operation",
    "Program",
    "ProgramError",
    "ProgramGraph",
    "Recordings",
    "Reference",
    "Site",
    "Step",
    "Traits",
    "TypedProgram",
    "UnsupportedProgramError",
    "build",
    "divides_ties",
    "element_programs",
    "infer",
    "is_pointwise",
    "is_readable_on",
    "is_transformed",
    "number_steps",
    "parse",
    "program_graph",
    "pullback",
    "pushforward",
    "result_count",
    "stored",
    "trace",
    "typed_program",
]

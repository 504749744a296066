"""From a pointwise program's text to a graph of typed operations, for any inputs.

bfloat16 and float16 are computed in float32, and rounded where the program converts to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from torchyard_cpu._programs.graph import ScoreGraph, UnsupportedProgramError
from torchyard_cpu._programs.lowering import Lowering
from torchyard_cpu._programs.vocabulary import CASTS, COMPUTED, STORED
from torchyard_programs import Reference, Step, TypedProgram

__all__ = ["ProgramLowering"]

_HALVES: Final = {torch.bfloat16: "round_bfloat16", torch.float16: "round_float16"}
_NUMBERS: Final[dict[Any, str]] = {bool: "bool", int: "int64", float: "float32"}


class ProgramLowering(Lowering):
    """The making of a program's graph, whose nodes ``input`` are named as the program's inputs.

    Args:
        program: the steps.
        inputs: the dtype of each input, or the type of a plain number; captured tensors, as
            ``$n``, among them.

    Attributes:
        numbers: the steps that depend on plain numbers alone; those that are combined with a tensor
            are inputs of the graph, by their names.
    """

    computed: Mapping[torch.dtype, str] = COMPUTED | dict.fromkeys(_HALVES, "float32")

    def __init__(self, program: TypedProgram, inputs: Mapping[str, Any]) -> None:
        self.program = program
        self.captured = []
        self.graph = ScoreGraph()
        self.values: dict[str, tuple[int, Any]] = {}
        self.numbers: list[Step] = []
        for name, dtype in inputs.items():
            self._give(name, dtype)

    def _give(self, name: str, dtype: Any) -> None:
        stored = STORED if isinstance(dtype, torch.dtype) else _NUMBERS
        if dtype not in stored:
            raise UnsupportedProgramError(f"reads a tensor of {str(dtype)[6:]}")
        self.values[name] = (self.graph.add("input", (), stored[dtype], name), dtype)

    def lowered(self, results: Sequence[torch.dtype]) -> tuple[int, ...]:
        """Return the nodes of the results as tensors of these dtypes hold them.

        Raises:
            UnsupportedProgramError: names the operation or dtype that native kernels lack.
        """
        for step in self.program.steps:
            if isinstance(step.dtype, torch.dtype):
                self.values[step.result] = (self.step(step), step.dtype)
            else:
                self.numbers.append(step)
        found = self.program.result
        items = found if isinstance(found, tuple) else (found,)
        return tuple(self._stored(item, dtype) for item, dtype in zip(items, results, strict=True))

    def step(self, step: Step) -> int:
        """Return the number of the node that a step becomes."""
        if step.word == "getitem":
            raise UnsupportedProgramError("indexes a captured tensor")
        number = super().step(step)
        return self._rounded_to(step.dtype, number) if step.word in CASTS else number

    def _value(self, item: Any) -> tuple[int, Any]:
        if item.name not in self.values:
            # A number that is combined with a tensor; the graph needs no others.
            self._give(item.name, next(s.dtype for s in self.numbers if s.result == item.name))
        return self.values[item.name]

    def _rounded_to(self, dtype: torch.dtype, number: int) -> int:
        if dtype not in _HALVES:
            return number
        return self.graph.add(_HALVES[dtype], (number,), "float32")

    def _stored(self, item: Any, dtype: torch.dtype) -> int:
        if dtype not in STORED:
            raise UnsupportedProgramError(f"gives {str(dtype)[6:]}")
        number = self.as_dtype(item, STORED[dtype])
        if isinstance(item, Reference) and self.values[item.name][1] in _HALVES:
            own = self.values[item.name][1]
            return number if own == dtype else self._rounded_to(own, number)
        return number

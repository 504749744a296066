"""Steps of plain numbers alone, which are computed before a kernel runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from torchyard import arguments
from torchyard_programs._program.build import build
from torchyard_programs._program.inference import Input, Traits
from torchyard_programs._program.program import Program, parse, references
from torchyard_programs._program.rewriting import rewritten
from torchyard_programs._program.typed import typed_program
from torchyard_programs._program.validation import inputs_of, traits_of

__all__ = ["NumberSteps", "number_steps"]


@dataclass(frozen=True, slots=True)
class NumberSteps:
    """A program of which the steps of plain numbers are apart.

    Attributes:
        text: the program without them.
        inputs: of that program: those of the whole one, and ``n0``, ``n1`` and so on, numbers that
            steps give.
        numbers: the program that gives these numbers, a tuple; it reads numbers alone.
    """

    text: str
    inputs: tuple[Input, ...]
    numbers: Program

    def computed(self, values: Sequence[Any]) -> tuple[bool | int | float, ...]:
        """Return the numbers that steps give, computed as Python does.

        Args:
            values: of the whole program's inputs; only numbers among them are read.

        Raises:
            ArithmeticError: Python has no result, as of a division by 0.
        """
        if not self.numbers.result:
            return ()
        found: tuple[bool | int | float, ...] = _function(self.numbers, len(values))(*values)
        return found


def number_steps(text: str, inputs: tuple[Input, ...], captured: Traits) -> NumberSteps:
    """Return a program and, apart from it, its steps of plain numbers.

    A number is float64. So a language without float64 computes a program whose numbers are used as
    float32 alone, once the steps between numbers are computed beforehand.

    Args:
        text: the program.
        inputs: its inputs, named ``x0``, ``x1`` and so on.
        captured: dtype and number of dimensions of each captured tensor.

    Raises:
        TypeError, ValueError: an argument does not fit the program; names it.
    """
    of = "number_steps"
    arguments.text(of, "text", text)
    inputs = inputs_of(of, inputs)
    for number, item in enumerate(inputs):
        if item.name != f"x{number}":
            raise arguments.wrong_value(of, "inputs", f"x{number} as a name", repr(item.name))
    return _steps(text, inputs, traits_of(of, captured))


@lru_cache(maxsize=1024)
def _steps(text: str, inputs: tuple[Input, ...], captured: Traits) -> NumberSteps:
    program = typed_program(text, inputs, captured)
    dtypes = {step.result: step.dtype for step in program.steps}
    apart = [name for name, dtype in dtypes.items() if not isinstance(dtype, torch.dtype)]
    # Of those, what the others read.
    used = [
        (step.args, *(item for _, item in step.kwargs))
        for step in program.steps
        if step.result not in apart
    ]
    read = {reference.name for reference in references((*used, program.result))}
    wanted = [name for name in apart if name in read]
    given = {name: f"n{number}" for number, name in enumerate(wanted)}
    *lines, _ = text.split("\n")
    numbers = parse("\n".join([*lines, json.dumps(wanted)]))
    own = tuple(Input(given[name], dtypes[name]) for name in wanted)
    return NumberSteps(rewritten(text, given), (*inputs, *own), numbers)


@lru_cache(maxsize=1024)
def _function(program: Program, inputs: int) -> Any:
    return build(program, tuple(f"x{number}" for number in range(inputs)))

"""Typed programs: the steps of a pointwise function and the dtypes of their results.

A kernel library that evaluates programs itself starts here: :func:`typed_program` returns the steps
of a text. Each word means the torch function of that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_programs._program.inference import Input, Traits, inferred
from torchyard_programs._program.program import parse
from torchyard_programs._program.validation import check_reads, inputs_of, traits_of
from torchyard_programs._program.vocabulary import REVERSED

__all__ = ["Step", "TypedProgram", "typed_program"]


@dataclass(frozen=True, slots=True)
class Step:
    """One pointwise operation.

    Attributes:
        result: the name by which later steps refer to it.
        word: the canonical name of a torch function and its aliases; ``getitem`` selects one
            element of a captured tensor.
        args: positional arguments: :class:`Reference`, numbers, dtypes, None or tuples of these. A
            reference names a step, an input, or, as ``$n``, a captured tensor.
        kwargs: keyword arguments.
        dtype: of the result, by torch's promotion; ``bool``, ``int`` or ``float`` for a number.
    """

    result: str
    word: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    dtype: Any


@dataclass(frozen=True, slots=True)
class TypedProgram:
    """The steps in order, and the result: a reference, a number, or a tuple of these."""

    steps: tuple[Step, ...]
    result: Any


def typed_program(text: str, inputs: tuple[Input, ...], captured: Traits) -> TypedProgram:
    """Return the steps of a program.

    Args:
        text: the program.
        inputs: the types of its inputs.
        captured: dtype and number of dimensions of each captured tensor.

    Raises:
        TypeError, ValueError: an argument does not fit the program; the message names it.
    """
    of = "typed_program"
    arguments.text(of, "text", text)
    return _typed(text, inputs_of(of, inputs), traits_of(of, captured))


@lru_cache(maxsize=1024)
def _typed(text: str, inputs: tuple[Input, ...], captured: Traits) -> TypedProgram:
    names = tuple([item.name for item in inputs])
    program = check_reads("typed_program", parse(text), names, len(captured))
    values = inferred(program, inputs, captured)
    steps = []
    for operation in program.operations:
        word, args = operation.word, operation.args
        if word in REVERSED:
            word, args = REVERSED[word], (args[1], args[0], *args[2:])
        name = operation.result.name
        value = values[name]
        dtype: torch.dtype | type = value.dtype if isinstance(value, Tensor) else type(value)
        steps.append(Step(name, word, args, operation.kwargs, dtype))
    return TypedProgram(tuple(steps), program.result)

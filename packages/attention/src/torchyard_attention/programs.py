"""Programs as plugins read them: the steps of a score_mod and the dtypes of what they give.

A kernel library that computes a score_mod by itself starts here: :func:`typed_program` turns the
text of a ``ScoreMod``, or of a request, into steps. What the words mean is said by torch: each is
the torch function of that name on scalars.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from torchyard_attention._evaluate import infer_dtypes
from torchyard_attention._program import Reference, parse
from torchyard_attention._vocabulary import REVERSED

__all__ = ["Reference", "Step", "TypedProgram", "typed_program"]


@dataclass(frozen=True, slots=True)
class Step:
    """One pointwise operation on scalars.

    Attributes:
        result: the name by which later steps refer to it.
        word: a torch function, by the one name that the package has for it and its aliases;
            ``getitem`` takes one element of a captured tensor.
        args: positional arguments: :class:`Reference`, numbers, dtypes, None or tuples of these. A
            reference names a step, one of the inputs ``s b h q k``, or, as ``$n``, a captured
            tensor.
        kwargs: keyword arguments.
        dtype: of the result, as torch promotes scalars.
    """

    result: str
    word: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class TypedProgram:
    """The steps in order, and the result: a reference or a number."""

    steps: tuple[Step, ...]
    result: Any


@lru_cache(maxsize=256)
def typed_program(
    text: str, captured: tuple[tuple[str, int], ...], score_dtype: str = "float32"
) -> TypedProgram:
    """Return the steps of a pointwise program.

    Args:
        text: a program, from ``ScoreMod.text`` or ``AttentionRequest.score_text``.
        captured: dtype name and number of dimensions of each captured tensor.
        score_dtype: the raw score's.
    """
    traits = tuple((getattr(torch, name), ndim) for name, ndim in captured)
    dtypes = infer_dtypes(text, getattr(torch, score_dtype), traits)
    program = parse(text)
    steps = []
    for operation in program.operations:
        word, args = operation.word, operation.args
        if word in REVERSED:
            word, args = REVERSED[word], (args[1], args[0], *args[2:])
        name = operation.result.name
        steps.append(Step(name, word, args, operation.kwargs, dtypes[name]))
    return TypedProgram(tuple(steps), program.result)

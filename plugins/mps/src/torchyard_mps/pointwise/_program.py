"""The program of a request: Metal functions of the elements of a group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import torch

from torchyard_kernels.pointwise.contract import NUMBERS, PointwiseRequest
from torchyard_mps.lowering import LoweredProgram, lower
from torchyard_programs import (
    Input,
    NumberSteps,
    Traits,
    element_programs,
    is_pointwise,
    number_steps,
    parse,
)

__all__ = ["MOST_TENSORS", "MapProgram", "lacking_of_map", "program_of"]

# The buffers of Metal, but for the table.
MOST_TENSORS: Final = 30


@dataclass(frozen=True, slots=True)
class MapProgram:
    """A request's program.

    Attributes:
        results: dtype of each result.
        lowered: of each result the function of (inputs..., captured tensors that it indexes...,
            layout), named ``program0`` and so on, with half precisions as float32.
        inputs: of the functions, elements of captured tensors last; numbers have Python's type.
        elements: whether captured tensors are inputs.
        steps: what is computed of plain numbers beforehand.
    """

    results: tuple[torch.dtype, ...]
    lowered: tuple[LoweredProgram, ...]
    inputs: tuple[Input, ...]
    elements: bool
    steps: NumberSteps

    @property
    def looked_up(self) -> tuple[tuple[int, str], ...]:
        """(number, type in Metal) of the captured tensors that the functions index."""
        found = {number: kind for one in self.lowered for number, kind, _ in one.tensors}
        return tuple(sorted(found.items()))


def program_of(request: PointwiseRequest) -> MapProgram:
    """Return a request's program, which its groups are no part of.

    Raises:
        UnsupportedProgramError: names what is not computed.
    """
    return _program(replace(request, groups=1, out=()))


@lru_cache(maxsize=1024)
def _program(request: PointwiseRequest) -> MapProgram:
    inputs = tuple(
        Input(f"x{number}", NUMBERS[name] if ndim < 0 else getattr(torch, name), max(ndim, 0))
        for number, (name, ndim) in enumerate(request.inputs)
    )
    captured: Traits = tuple((getattr(torch, name), ndim) for name, ndim in request.captured)
    elements = is_pointwise(parse(request.text), inputs, tuple((dtype, 0) for dtype, _ in captured))
    steps = number_steps(request.text, inputs, captured)
    found = element_programs(steps.text, steps.inputs, captured, elements=elements)
    lowered = tuple(
        lower(one, found.inputs, found.captured, name=f"program{number}", result=str(dtype)[6:])
        for number, (one, dtype) in enumerate(zip(found.texts, found.results, strict=True))
    )
    return MapProgram(found.results, lowered, found.inputs, elements, steps)


def lacking_of_map(request: PointwiseRequest) -> str:
    """Return which tensors are more than a launch has buffers for; empty where none are."""
    given = sum(ndim >= 0 for _, ndim in request.inputs)
    results, captured = len(program_of(request).results), len(request.captured)
    if given + results + captured <= MOST_TENSORS:
        return ""
    return (
        f"expected at most {MOST_TENSORS} tensors of a group, got {given} inputs, {results} "
        f"results and {captured} captured ones: Metal has 31 buffers"
    )

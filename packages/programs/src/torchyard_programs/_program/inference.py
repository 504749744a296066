"""Type inference: dtype and number of dimensions of each step, by torch's promotion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard.torch_compat import without_modes
from torchyard_programs._errors import ProgramError
from torchyard_programs._program.functions import call_of, gather_any
from torchyard_programs._program.program import Operation, Program, Reference
from torchyard_programs._program.validation import (
    MOST_DIMENSIONS,
    check_reads,
    inputs_of,
    traits_of,
)
from torchyard_programs._program.vocabulary import is_word

__all__ = ["Input", "Traits", "infer", "inferred", "is_pointwise"]

_NUMBERS: Final = (bool, int, float)

# The dtype and number of dimensions of each captured tensor.
Traits = tuple[tuple[torch.dtype, int], ...]


@dataclass(frozen=True, slots=True)
class Input:
    """The type of an input.

    Attributes:
        name: its name in the program.
        dtype: of a tensor; ``bool``, ``int`` or ``float`` for a plain number.
        ndim: 0 for a scalar; in torch's promotion scalars have lower priority than tensors with
            dimensions.
    """

    name: str
    dtype: torch.dtype | type[bool | int | float]
    ndim: int = 0

    def __post_init__(self) -> None:
        arguments.text("Input", "name", self.name)
        if not isinstance(self.dtype, torch.dtype) and not any(
            self.dtype is kind for kind in _NUMBERS
        ):
            raise arguments.wrong_kind(
                "Input", "dtype", "a torch.dtype, bool, int or float", self.dtype
            )
        ndim = arguments.integer("Input", "ndim", self.ndim, least=0, most=MOST_DIMENSIONS)
        object.__setattr__(self, "ndim", ndim)


def infer(program: Program, inputs: tuple[Input, ...], captured: Traits) -> dict[str, Any]:
    """Run a program on single elements and return each step's result: a tensor, or a number where
    all of its arguments are numbers.

    It runs on the CPU, where a step takes microseconds; torch's first operation on the meta device
    imports its compiler, which takes more than a second. A program that fails for the values used
    (a division by zero) runs again on the meta device, which has no values.

    Raises:
        TypeError, ValueError: an argument does not fit the program; the message names it.
    """
    return inferred(*_fitting("infer", program, inputs, captured))


def inferred(program: Program, inputs: tuple[Input, ...], captured: Traits) -> dict[str, Any]:
    """:func:`infer` for arguments that were checked."""
    try:
        return inferred_on(program, inputs, captured, torch.device("cpu"))
    except (RuntimeError, IndexError, ArithmeticError):
        return inferred_on(program, inputs, captured, torch.device("meta"))


def is_pointwise(program: Program, inputs: tuple[Input, ...], captured: Traits) -> bool:
    """Return whether all steps are words of the vocabulary and map scalars to scalars.

    Raises:
        TypeError, ValueError: an argument does not fit the program; the message names it.
    """
    program, inputs, captured = _fitting("is_pointwise", program, inputs, captured)
    if not all(is_word(operation.word) for operation in program.operations):
        return False
    if not all(_indexes_wholly(operation, captured) for operation in program.operations):
        return False
    scalars = tuple(Input(given.name, given.dtype) for given in inputs)
    values = inferred(program, scalars, captured).values()
    return all(not isinstance(value, Tensor) or value.ndim == 0 for value in values)


def _fitting(
    of: str, program: Program, inputs: tuple[Input, ...], captured: Traits
) -> tuple[Program, tuple[Input, ...], Traits]:
    """Return the arguments, checked: they contain everything that the steps read."""
    inputs, captured = inputs_of(of, inputs), traits_of(of, captured)
    names = tuple([item.name for item in inputs])
    return check_reads(of, program, names, len(captured)), inputs, captured


def _indexes_wholly(operation: Operation, captured: Traits) -> bool:
    """Return False for indexing that does not select one element of a captured tensor."""
    if operation.word != "getitem":
        return True
    source, index = operation.args
    indices = index if isinstance(index, tuple) else (index,)
    return (
        source.name[0] == "$"
        and len(indices) == captured[int(source.name[1:])][1]
        and all(isinstance(item, Reference | int) for item in indices)
    )


def inferred_on(
    program: Program, inputs: tuple[Input, ...], captured: Traits, device: torch.device
) -> dict[str, Any]:
    """:func:`infer` on one device."""
    values: dict[str, Any] = {}
    steps = {}
    with torch.no_grad(), without_modes():
        for given in inputs:
            values[given.name] = _example(given.dtype, given.ndim, device)
        for index, (dtype, ndim) in enumerate(captured):
            values[f"${index}"] = _example(dtype, ndim, device)
        for operation in program.operations:
            result = _step(operation)(values)
            if not isinstance(result, Tensor) and not _is_arithmetic(operation, values, result):
                raise ProgramError(
                    f"program: expected {operation.word} to give a tensor, got "
                    f"{type(result).__name__}"
                )
            values[operation.result.name] = result
            steps[operation.result.name] = result
    return steps


def _example(dtype: Any, ndim: int, device: torch.device) -> Any:
    if isinstance(dtype, torch.dtype):
        return torch.ones((1,) * ndim, dtype=dtype, device=device)
    return dtype(1)


def _is_arithmetic(operation: Operation, values: dict[str, Any], result: Any) -> bool:
    """Return whether a step computed a number from numbers alone."""
    return isinstance(result, bool | int | float) and not any(
        isinstance(_lookup(arg, values), Tensor) for arg in operation.args
    )


def _step(operation: Operation) -> Callable[[dict[str, Any]], Any]:
    function, args = call_of(operation)
    if operation.word == "getitem":
        function = gather_any  # plain indexing by a scalar would read its value

    def run(values: dict[str, Any]) -> Any:
        kwargs = {name: _lookup(value, values) for name, value in operation.kwargs}
        return function(*(_lookup(arg, values) for arg in args), **kwargs)

    return run


def _lookup(item: Any, values: dict[str, Any]) -> Any:
    if isinstance(item, Reference):
        return values[item.name]
    if isinstance(item, tuple):
        return tuple(_lookup(part, values) for part in item)
    return item

"""Recorded pointwise functions that run before or after a product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import Spread
from torchyard_programs import (
    Input,
    ProgramError,
    build,
    infer,
    is_pointwise,
    parse,
    result_count,
    trace,
)

__all__ = ["NAMES", "Recorded", "record", "recording_of", "required"]

# Names of the inputs of each role in programs.
PROLOGUE = ("x",)
EPILOGUE = ("y",)
GATED = ("gate", "up")
# By role, and by whether the function takes halves.
NAMES: Final[dict[tuple[str, bool], tuple[str, ...]]] = {
    ("prologue", False): PROLOGUE,
    ("epilogue", False): EPILOGUE,
    ("epilogue", True): GATED,
}


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A function as data: ``torchyard_kernels.linear.contract.Function``.

    Attributes:
        text: the program.
        captured: its captured tensors, in the program's order.
        inputs: what the program calls its inputs.
    """

    text: str
    captured: tuple[Tensor, ...]
    inputs: tuple[str, ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        """Return the result by torch's operators, in the dtype that they give."""
        result: Tensor = _built(self.text, self.inputs)(*inputs, *self.captured)
        return result

    def check(self, given: torch.dtype) -> None:
        """Raise ProgramError where the function is not pointwise."""
        traits = tuple((tensor.dtype, 0) for tensor in self.captured)
        if not _pointwise(self.text, self.inputs, given, traits):
            role = "prologue" if self.inputs == PROLOGUE else "epilogue"
            raise ProgramError(
                f"linear: {role}: expected pointwise operations on its inputs and on captured "
                f"tensors as they are, got\n{self.text}\napply the rest to x or to the result"
            )

    def dtype(self, given: torch.dtype) -> torch.dtype:
        """Return the result's dtype for inputs of a dtype, by torch's promotion."""
        traits = tuple((tensor.dtype, tensor.ndim) for tensor in self.captured)
        return _dtype(self.text, self.inputs, given, traits)

    def spreads(self, shape: torch.Size) -> tuple[tuple[str, Spread], ...]:
        """Return dtype and spread of each captured tensor over [..., columns]."""
        return tuple(
            (str(tensor.dtype)[6:], _spread(tensor.shape, shape)) for tensor in self.captured
        )


def record(
    function: Callable[..., Tensor],
    role: str,
    gated: bool,
    x: Tensor,
    leaves: Sequence[Tensor] = (),
) -> Recorded:
    """Record a function.

    Args:
        function: pointwise.
        role: ``prologue`` or ``epilogue``.
        gated: whether it takes two halves.
        x: gives dtype and device.
        leaves: what the function's inputs are computed of.

    Raises:
        torchyard_programs.ProgramError: it does something that cannot be recorded.
    """
    names = NAMES[role, gated]
    text, captured = recording_of(function, role, names, x.dtype, x.device, leaves)
    return Recorded(text, tuple(captured), names)


def recording_of(
    function: Callable[..., Tensor],
    role: str,
    names: tuple[str, ...],
    dtype: torch.dtype,
    device: torch.device,
    leaves: Sequence[Tensor] = (),
) -> tuple[str, list[Tensor]]:
    """Return a function's program and captured tensors, for inputs of a dtype on a device."""
    inputs = tuple((name, dtype) for name in names)
    text, captured = trace(function, role, inputs, device, "an input", "x.dtype", leaves=leaves)
    if result_count(text) is not None:
        raise ProgramError(f"{role}: expected a function that returns one tensor, got a tuple")
    return text, captured


def required(function: Callable[..., Tensor]) -> int:
    """Return the number of required parameters of a Python function; 1 for other callables."""
    if type(function) is FunctionType:
        # Not a method: looking for one takes longer than the rest.
        count, defaults = function.__code__.co_argcount, function.__defaults__
        return count if defaults is None else count - len(defaults)
    code = getattr(function, "__code__", None)
    if code is None:
        return 1
    bound = 1 if hasattr(function, "__self__") else 0
    return int(code.co_argcount) - len(getattr(function, "__defaults__", None) or ()) - bound


@lru_cache(maxsize=1024)
def _built(text: str, inputs: tuple[str, ...]) -> Callable[..., Any]:
    return build(parse(text), inputs)


@lru_cache(maxsize=1024)
def _pointwise(
    text: str,
    inputs: tuple[str, ...],
    given: torch.dtype,
    captured: tuple[tuple[torch.dtype, int], ...],
) -> bool:
    return is_pointwise(parse(text), tuple(Input(name, given) for name in inputs), captured)


@lru_cache(maxsize=1024)
def _dtype(
    text: str,
    inputs: tuple[str, ...],
    given: torch.dtype,
    captured: tuple[tuple[torch.dtype, int], ...],
) -> torch.dtype:
    program = parse(text)
    found = infer(program, tuple(Input(name, given, 1) for name in inputs), captured)
    result = program.result
    name = getattr(result, "name", None)
    if name in inputs:
        return given
    value = result if name is None else found[name]
    dtype: torch.dtype = torch.as_tensor(value).dtype
    return dtype


def _spread(captured: torch.Size, shape: torch.Size) -> Spread:
    """Return how a captured tensor broadcasts to [..., columns].

    Raises:
        ValueError: it does not broadcast to that shape.
    """
    padded = (1,) * (len(shape) - len(captured)) + tuple(captured)
    if len(padded) > len(shape) or any(
        size not in (1, whole) for size, whole in zip(padded, shape, strict=True)
    ):
        raise ValueError(
            f"linear: expected captured tensors that broadcast to {list(shape)}, got "
            f"{list(captured)}"
        )
    if not captured:
        return Spread.SCALAR
    rows = any(size != 1 for size in padded[:-1])
    columns = padded[-1] != 1
    if rows:
        return Spread.TILE if columns else Spread.ROW
    return Spread.COLUMN if columns else Spread.ONE

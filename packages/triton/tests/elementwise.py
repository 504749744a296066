"""Programs of (x, y, i, j) computed element by element, by Triton and by torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchyard_programs import Input, trace
from torchyard_triton.lowering import LoweredProgram, captured_values, lower

__all__ = ["INPUTS", "Traced", "computed", "derivatives", "traced"]

INPUTS = (
    Input("x", torch.float32),
    Input("y", torch.float32),
    Input("i", torch.int64),
    Input("j", torch.int64),
)


@triton.jit
def _elementwise(X, Y, I, J, OUT, captured, FUNCTION: tl.constexpr, SIZE: tl.constexpr):  # noqa: E741
    at = tl.arange(0, SIZE)
    x, y = tl.load(X + at), tl.load(Y + at)
    value = FUNCTION(x, y, tl.load(I + at), tl.load(J + at), captured)
    tl.store(OUT + at, value)


@triton.jit
def _pairs(X, Y, I, J, FIRST, SECOND, captured, FUNCTION: tl.constexpr, SIZE: tl.constexpr):  # noqa: E741
    at = tl.arange(0, SIZE)
    x, y = tl.load(X + at), tl.load(Y + at)
    first, second = FUNCTION(x, y, tl.load(I + at), tl.load(J + at), captured)
    tl.store(FIRST + at, first)
    tl.store(SECOND + at, second)


@dataclass(frozen=True)
class Traced:
    """A recorded function of (x, y, i, j)."""

    text: str
    captured: tuple[Tensor, ...]

    def lowered(self, **options: Any) -> LoweredProgram:
        traits = tuple((tensor.dtype, tensor.ndim) for tensor in self.captured)
        return lower(self.text, INPUTS, traits, **options)


def traced(function: Callable[..., Any]) -> Traced:
    inputs = tuple((item.name, item.dtype) for item in INPUTS)
    text, captured = trace(function, "fn", inputs, torch.device("cpu"))
    return Traced(text, tuple(captured))


def computed(
    function: Callable[..., Any], values: tuple[Tensor, ...], dtype: torch.dtype
) -> Tensor:
    """Return a function of four vectors, by Triton's interpreter."""
    program = traced(function)
    lowered = program.lowered(result=str(dtype).removeprefix("torch."))
    out = torch.empty(values[0].shape, dtype=dtype)
    captured = captured_values(lowered, program.captured)
    size = values[0].numel()
    _elementwise[(1,)](*values, out, captured, FUNCTION=lowered.function(), SIZE=size)
    return out


def derivatives(function: Callable[..., Any], values: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return a function's derivatives by x and y, by Triton's interpreter."""
    program = traced(function)
    lowered = program.lowered(result="float32", derivatives=("x", "y"))
    first, second = torch.empty_like(values[0]), torch.empty_like(values[0])
    captured = captured_values(lowered, program.captured)
    slope, size = lowered.function(lowered.slope), values[0].numel()
    _pairs[(1,)](*values, first, second, captured, FUNCTION=slope, SIZE=size)
    return first, second

"""Functions of linear layers, recorded as the contract's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import Spread
from torchyard_programs import build, parse, trace

__all__ = ["Recorded", "record"]


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A function: ``torchyard_kernels.linear.contract.Function``.

    Attributes:
        text, captured, inputs: as the contract says.
    """

    text: str
    captured: tuple[Tensor, ...]
    inputs: tuple[str, ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        """Return the result by torch's operators."""
        result: Tensor = build(parse(self.text), self.inputs)(*inputs, *self.captured)
        return result

    def dtype(self, given: torch.dtype) -> torch.dtype:
        """Return the result's dtype for inputs of a dtype."""
        ones = (torch.ones(1, 1, dtype=given) for _ in self.inputs)
        empty = (torch.ones([1] * item.ndim, dtype=item.dtype) for item in self.captured)
        result: Tensor = build(parse(self.text), self.inputs)(*ones, *empty)
        return result.dtype

    def spreads(self, shape: torch.Size) -> tuple[tuple[str, Spread], ...]:
        """Return dtype and spread of each captured tensor over [..., columns]."""
        return tuple((str(item.dtype)[6:], _spread(item)) for item in self.captured)


def record(function: Callable[..., Any], dtype: torch.dtype, inputs: tuple[str, ...]) -> Recorded:
    """Record a function of inputs of a dtype."""
    named = tuple((name, dtype) for name in inputs)
    host = torch.device("cpu")
    text, captured = trace(function, "a case's function", named, host, anywhere=True)
    return Recorded(text, tuple(captured), inputs)


def _spread(captured: Tensor) -> Spread:
    if not captured.ndim:
        return Spread.SCALAR
    rows, columns = any(size != 1 for size in captured.shape[:-1]), captured.shape[-1] != 1
    if rows:
        return Spread.TILE if columns else Spread.ROW
    return Spread.COLUMN if columns else Spread.ONE

"""A quantized graph in float64, and what rounding the other way at ties would make of it.

Quantization is a step function: where a number is at a tie between two codes, the last bit of the
sum that made it decides which one it becomes. Two right programs therefore differ by whole steps,
and how far that reaches depends on the layers behind. It is measured rather than guessed: once with
each code as float64 has it, and once with those nearest to a tie as the other neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from torchyard_export._audit.rounding import CHOOSES, ROUNDS, WIDENS, call_name

__all__ = ["ExactGraph"]

# In steps. float32 sums of thousands of products, of numbers up to 255 steps, are off by less.
_TIE: Final = 2.0**-10
# As many codes of each tensor at least: those nearest to a tie.
_FEWEST: Final = 4


class ExactGraph:
    """Run a quantized graph with float64 between its codes.

    Args:
        graph: as torchao converts it; it is not changed.
        ties: round numbers at a tie to the other neighbour.
    """

    def __init__(self, graph: GraphModule, *, ties: bool = False) -> None:
        self._graph, self._ties = graph, ties

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the graph; floating inputs are float64."""
        run = _Float64(self._graph, ties=self._ties)
        return run.run(*args, *kwargs.values())


class _Float64(Interpreter):
    def __init__(self, graph: GraphModule, *, ties: bool) -> None:
        super().__init__(graph)
        self._ties = ties

    def run_node(self, n: Node) -> Any:
        name = call_name(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if name in ROUNDS:
            return self._codes(*args, **kwargs)
        if name in WIDENS:
            return _numbers(*args) if "per_channel" not in name else _channels(*args)
        if name == CHOOSES:
            return _scale_and_zero(*args)
        return _wide(super().run_node(n))

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return super().call_function(
            target, tuple(map(_wide_dtype, args)), {k: _wide_dtype(v) for k, v in kwargs.items()}
        )

    def _codes(
        self, x: Tensor, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype
    ) -> Tensor:
        steps = x.double() / scale
        codes = torch.round(steps)
        if self._ties and steps.numel():
            below = torch.floor(steps)
            distance = (steps - below - 0.5).abs()
            fewest = min(_FEWEST, distance.numel())
            nearest = distance.flatten().topk(fewest, largest=False).values.amax()
            at_tie = distance <= nearest.clamp(min=_TIE)
            codes = torch.where(at_tie, 2 * below + 1 - codes, codes)
        return codes.add(zero).clamp(low, high).to(dtype)


def _numbers(codes: Tensor, scale: Any, zero: Any, *_: Any) -> Tensor:
    return codes.double().sub(zero).mul(scale)


def _channels(codes: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: Any) -> Tensor:
    shape = [-1 if place == axis else 1 for place in range(codes.dim())]
    offset = 0.0 if zeros is None else zeros.double().reshape(shape)
    return (codes.double() - offset) * scales.double().reshape(shape)


def _scale_and_zero(
    x: Tensor, low: int, high: int, least: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    # The range holds zero, so that zero has a code.
    first, last = x.amin().clamp(max=0.0).double(), x.amax().clamp(min=0.0).double()
    scale = ((last - first) / (high - low)).clamp(min=least).reshape(1)
    return scale, (low - torch.round(first / scale)).clamp(low, high).long()


def _wide(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_wide, value))
    if isinstance(value, Tensor) and value.dtype == torch.float32:
        return value.double()
    return value


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value

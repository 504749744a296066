"""A function with a backward of its own is refused by every op that records functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_kernels import foreach_map, linear
from torchyard_programs import ProgramError


class _Straight(torch.autograd.Function):
    """tanh whose backward lets the gradient through as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return slopes[0]


def _straight(x: Tensor) -> Any:
    apply: Any = _Straight.apply
    return apply(x)


_OPS: dict[str, Callable[[Tensor], Any]] = {
    "prologue": lambda x: linear(x, x, prologue=_straight),
    "epilogue": lambda x: linear(x, x, epilogue=_straight),
    "gated epilogue": lambda x: linear(x, x, epilogue=lambda gate, up: _straight(gate) * up),
    "foreach_map": lambda x: foreach_map(_straight, [x]),
    "foreach_map and a number": lambda x: foreach_map(lambda y, a: _straight(y) * a, [x], 0.5),
}


@pytest.mark.parametrize("name", _OPS)
def test_it_is_refused_also_after_calls_without_gradients(name: str) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    with torch.no_grad():
        for _ in range(4):
            _OPS[name](x)
    with pytest.raises(ProgramError, match="tanh is computed without gradients"):
        _OPS[name](x)


@pytest.mark.parametrize("name", _OPS)
def test_compiled_graphs_refuse_it_by_name(name: str) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    torch.compiler.reset()
    compiled = torch.compile(_OPS[name], backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="tanh is computed without gradients"):
        compiled(x)

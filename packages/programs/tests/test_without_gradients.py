"""What is computed without gradients is refused, since a program's derivative would have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_programs import ProgramError, trace


class _Straight(torch.autograd.Function):
    """tanh whose backward lets the gradient through as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return slopes[0]


def _block(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.tanh()


def _inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.tanh()


@torch.no_grad()
def _decorated(x: Tensor) -> Tensor:
    return x.tanh()


_FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "autograd.Function": _Straight.apply,
    "no_grad": _block,
    "inference_mode": _inference,
    "a decorator": _decorated,
}
_IN_COMPILED_GRAPHS = ("autograd.Function", "no_grad", "a decorator")


def _text(function: Callable[[Tensor], Any]) -> str:
    return trace(function, "fn", (("x", torch.float32),), torch.device("cpu"))[0]


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_a_value_without_gradients_is_refused_where_gradients_are_computed(name: str) -> None:
    with pytest.raises(ProgramError, match=r"fn: tanh is computed without gradients.*detach"):
        _text(_FUNCTIONS[name])


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_it_is_recorded_where_nobody_computes_gradients(name: str) -> None:
    with torch.no_grad():
        assert _text(_FUNCTIONS[name]) == _text(torch.tanh)


def test_captured_tensors_may_be_computed_without_gradients() -> None:
    table = torch.ones(4, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        with torch.no_grad():
            shift = table.sum()
        return x + shift

    text, captured = trace(function, "fn", (("x", torch.float32),), torch.device("cpu"))
    assert '["add",["x","$0"],{}]' in text
    assert not captured[0].requires_grad


@pytest.mark.parametrize("name", _IN_COMPILED_GRAPHS)
def test_dynamo_refuses_it_where_the_inputs_require_gradients(name: str) -> None:
    function = _FUNCTIONS[name]

    def traced(leaf: Tensor) -> Tensor:
        inputs = (("x", torch.float32),)
        text, _ = trace(function, "fn", inputs, torch.device("cpu"), leaves=(leaf,))
        return leaf + len(text)

    torch.compiler.reset()
    compiled = torch.compile(traced, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="tanh is computed without gradients"):
        compiled(torch.ones(2, requires_grad=True))

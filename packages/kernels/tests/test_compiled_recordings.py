"""A function is recorded alike under torch.compile and without it, or refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_kernels import foreach_map, linear
from torchyard_kernels.pointwise._recordings import recorded

_OPERATORS: dict[str, Callable[[Tensor], Any]] = {
    "number + x": lambda x: 2 + x,
    "number - x": lambda x: 2 - x,
    "number * x": lambda x: 2 * x,
    "number / x": lambda x: 2 / x,
    "number // x": lambda x: 2 // x,
    "number % x": lambda x: 2 % x,
    "number ** x": lambda x: 2**x,
    "rsub": lambda x: torch.rsub(x, 3, alpha=2),
    "several": lambda x: 1 - 2 * x / (3 + x),
    "comparison": lambda x: torch.where(x > 0, 2 * x, 0.5),
}
_INTEGERS: dict[str, Callable[[Tensor], Any]] = {
    "number & x": lambda x: 2 & x,
    "number | x": lambda x: 2 | x,
    "number ^ x": lambda x: 2 ^ x,
}
# What Dynamo computes past a TorchFunctionMode.
_UNSEEN: dict[str, Callable[[Tensor], Any]] = {
    "abs": lambda x: 1 - abs(x),
    "prod": lambda x: math.prod([x, x]),
}
_OPS: dict[str, Callable[[Callable[[Tensor], Any], Tensor], Any]] = {
    "foreach_map": lambda fn, x: foreach_map(fn, [x])[0],
    "prologue": lambda fn, x: linear(x, torch.eye(4), prologue=fn),
    "epilogue": lambda fn, x: linear(x, torch.eye(4), epilogue=fn),
}


def _compiled_text(fn: Callable[..., Any], x: Tensor) -> str:
    texts: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        texts.extend(
            argument
            for node in graph.graph.nodes
            if "pointwise" in str(node.target)
            for argument in node.args
            if isinstance(argument, str) and argument[-1:] == '"'
        )
        return graph

    torch.compiler.reset()
    torch.compile(lambda: foreach_map(fn, [x]), backend=backend, fullgraph=True)()
    (text,) = texts
    return text


@pytest.mark.parametrize("name", [*_OPERATORS, *_INTEGERS])
def test_a_compiled_recording_is_the_text_of_an_eager_one(name: str) -> None:
    integers = name in _INTEGERS
    fn = (_INTEGERS if integers else _OPERATORS)[name]
    x = torch.arange(4) if integers else torch.rand(4)
    assert _compiled_text(fn, x) == recorded(fn, "foreach_map", ([x],))[0]


@pytest.mark.sweep
@pytest.mark.parametrize("op", _OPS)
@pytest.mark.parametrize("name", _UNSEEN)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_a_compiled_recording_does_not_see_is_refused(
    op: str, name: str, fullgraph: bool
) -> None:
    """Which that is differs by torch; what is seen is computed."""
    x, call, fn = torch.randn(4, 4), _OPS[op], _UNSEEN[name]
    expected = call(fn, x)
    torch.compiler.reset()
    compiled = torch.compile(lambda: call(fn, x), backend="aot_eager", fullgraph=fullgraph)
    found, refused = None, ""
    try:
        found = compiled()
    except Exception as error:
        refused = str(error)
    if found is None:
        assert "is not seen by a recording" in refused
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("op", _OPS)
def test_what_is_captured_of_other_tensors_is_not_refused(op: str) -> None:
    x, scale, call = torch.randn(4, 4), torch.randn(4), _OPS[op]

    def run() -> Tensor:
        return call(lambda x: x * abs(scale) + math.prod([scale, scale]), x)

    torch.compiler.reset()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(), run())

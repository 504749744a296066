"""A function of any inputs is recorded completely, or refused with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from torchyard_programs import (
    Input,
    ProgramError,
    Reference,
    build,
    is_pointwise,
    parse,
    trace,
)

_CPU = torch.device("cpu")
_ELSEWHERE = torch.ones(2, device="meta")
_WORDS = ("add", "sub", "mul", "maximum", "where", "tanh", "neg", "lerp")


def recorded(function: Callable[..., Any], *names: str) -> tuple[str, list[torch.Tensor]]:
    return trace(function, "fn", tuple((name, None) for name in names), _CPU)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(_WORDS), st.integers(0, 3), st.floats(-3, 3, allow_nan=False, width=32)
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=60)
def test_what_was_recorded_computes_as_the_function_does(
    steps: list[tuple[str, int, float]],
) -> None:
    bias = torch.linspace(-1, 1, 5)

    def function(x: Any, other: Any, k: Any) -> Any:
        operands = (x, other, k, bias)
        for word, operand, number in steps:
            y = operands[operand]
            if word == "add":
                x = x + y
            elif word == "sub":
                x = number - x - y
            elif word == "mul":
                x = number * x
            elif word == "maximum":
                x = torch.maximum(x, y)
            elif word == "where":
                x = torch.where(y > number, x, y)
            elif word == "tanh":
                x = x.tanh()
            elif word == "lerp":
                x = torch.lerp(x, y, 0.25)
            else:
                x = -x
        return x

    # Names that the evaluation's own text might use for something else.
    text, captured = recorded(function, "x", "k1", "f0")
    again = build(parse(text), ("x", "k1", "f0"))
    inputs = [torch.randn(5) for _ in range(3)]

    torch.testing.assert_close(again(*inputs, *captured), function(*inputs), rtol=0, atol=0)


_ACTIVATIONS = (
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 "
    "selu sigmoid silu softplus softshrink softsign tanh tanhshrink"
).split()


@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_every_activation_of_torch_nn_functional_is_recorded_and_pointwise(name: str) -> None:
    function = getattr(functional, name)
    text, captured = recorded(function, "x")
    x = torch.linspace(-8, 8, 41)

    assert captured == []
    assert is_pointwise(parse(text), (Input("x", torch.float32, 1),), ())
    again = build(parse(text), ("x",))
    torch.testing.assert_close(again(x), function(x), rtol=0, atol=0)


def test_several_results_are_recorded_in_order() -> None:
    text, _ = recorded(lambda x, y: (x + y, x, 2.0), "x", "y")
    program = parse(text)

    assert program.result == (Reference("%0"), Reference("x"), 2.0)
    assert [operation.word for operation in program.operations] == ["add"]


def test_equal_structure_gives_equal_text_whatever_is_captured() -> None:
    def make(tensor: torch.Tensor) -> tuple[str, list[torch.Tensor]]:
        return recorded(lambda x: x * tensor + tensor, "x")

    (first, [one]), (second, [other]) = make(torch.ones(3)), make(torch.zeros(3))

    assert first == second
    assert one is not other


def test_a_stand_in_tells_the_dtype_that_it_was_given_and_no_other() -> None:
    text, _ = trace(lambda x: x.to(x.dtype), "fn", (("x", torch.bfloat16),), _CPU)
    assert parse(text).operations[0].args[1] is torch.bfloat16

    with pytest.raises(ProgramError, match=r"fn: the dtype .* read an input's dtype, or convert"):
        recorded(lambda x: (x + 1).to((x + 1).dtype), "x")


@pytest.mark.parametrize(
    ("function", "remedy"),
    [
        (lambda x: x if x > 0 else -x, r"fn: a decision in Python .* on an input .* torch\.where"),
        (lambda x: x.mul_(2), r"fn: \.mul_\(\) works in place, .* use \.mul\(\)"),
        (lambda x: float(x), "fn: an input cannot become a Python number"),
        (lambda x: x + object(), "fn: expected tensors, numbers, .* got object"),
        (
            lambda x: functional.relu(x, inplace=True),
            "fn: relu with inplace=True works in place, .* leave inplace out",
        ),
        (lambda x, y: x, r"fn: expected a function that takes \(x\), got <lambda>\(x, y\)"),
        (3, r"fn: expected a function that takes \(x\), got int"),
        (lambda x: {"y": x}, "fn: .* returns a tensor or a number, got dict"),
        (lambda x: x + _ELSEWHERE, r"fn: expected captured .* on cpu, .* \[2\] on meta; move"),
    ],
    ids=[
        *("decision", "in place", "number", "object", "inplace"),
        *("arguments", "no function", "result", "device"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_a_remedy(
    function: Callable[..., Any], remedy: str
) -> None:
    with pytest.raises(ProgramError, match=remedy):
        recorded(function, "x")


def test_dynamo_reads_the_tracer() -> None:
    texts = []

    def run(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        text, captured = recorded(lambda x, y: y - torch.tanh(x) / scale, "x", "y")
        texts.append(text)
        return x * captured[0]

    compiled = torch.compile(run, backend="eager", fullgraph=True)
    x, y, scale = torch.randn(3), torch.randn(3), torch.tensor(3.0)

    assert torch.equal(compiled(x, scale), x * scale)
    (text,) = texts
    again = build(parse(text), ("x", "y"))
    assert torch.equal(again(x, y, scale), y - torch.tanh(x) / scale)


def test_inputs_are_values() -> None:
    assert Input("x", torch.float32, 2) == Input("x", torch.float32, 2)
    assert len({Input("x", float), Input("x", int), Input("x", float)}) == 2

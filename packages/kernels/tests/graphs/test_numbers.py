"""Numbers of Python in a captured function: a replay gives the function's bits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard_kernels import capture
from torchyard_kernels.graphs.implementations._numbers import tensor_of

DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64),
    *(torch.int8, torch.int32, torch.int64, torch.bool),
)
OPERATORS: dict[str, Callable[[Any, Any], Tensor]] = {
    "+": operator.add,
    "*": operator.mul,
    "/": operator.truediv,
    "-": operator.sub,
    "//": operator.floordiv,
    "twice": lambda x, y: x * y + y,
    "alpha": lambda x, y: torch.add(x, y, alpha=2),
}


def _drawn(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tensor:
    x = (torch.randn(shape) * 50).to(dtype)
    # Integers are not divided by 0 by the function either.
    return torch.where(x == 0, torch.ones_like(x), x) if name == "//" else x


@settings(deadline=None, max_examples=150)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.sampled_from([(), (1,), (5,), (2, 3)]),
    name=st.sampled_from(sorted(OPERATORS)),
    number=st.one_of(
        st.booleans(),
        st.integers(-300, 300),
        st.floats(-1e3, 1e3),
        st.sampled_from([float("inf"), float("nan"), 1e300, 2**40, 1 + 0.3j]),
    ),
    first=st.booleans(),
)
def test_a_replay_gives_the_bits_of_the_function(
    dtype: torch.dtype, shape: tuple[int, ...], name: str, number: Any, first: bool
) -> None:
    x, y = _drawn(shape, dtype, name), _drawn(shape, dtype, name)

    def function(x: Tensor) -> Tensor:
        return OPERATORS[name](number, x) if first else OPERATORS[name](x, number)

    try:
        expected = function(y)
    except (RuntimeError, TypeError):
        return  # not an operation of these
    graph = capture(function, x)
    torch.testing.assert_close(graph(y), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64], ids=str
)
@pytest.mark.parametrize("number", [True, 3, 0.3])
def test_a_number_beside_a_tensor_with_dimensions_leaves_the_interpreter_to_work(
    dtype: torch.dtype, number: Any
) -> None:
    x = torch.ones(4, 3).to(dtype)
    graph = capture(lambda x: (x * number + number) / (number + x), x)
    assert graph.mechanism == "torch's interpreter"
    graph.check(x)


def test_in_place_changes_take_numbers_too() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.clone()
        y += 0.1
        y *= 3
        return y

    graph = capture(function, torch.zeros(3))
    assert graph.mechanism == "torch's interpreter"
    graph.check(torch.randn(3))


def test_a_number_keeps_its_digits_beside_narrow_tensors() -> None:
    # 0.1 is another number in bfloat16.
    held = tensor_of(0.1, [torch.ones(3, dtype=torch.bfloat16)])
    assert held is not None
    assert held.dtype is torch.float64
    # Two tensors without dimensions would settle on the wider of them.
    assert tensor_of(0.1, [torch.tensor(1.0, dtype=torch.bfloat16)]) is None
    x = torch.tensor(1.0, dtype=torch.bfloat16)
    graph = capture(lambda x: x * 0.1, x)
    assert graph.mechanism.startswith("calls")
    graph.check(x)

"""Repeatable code is distinguished from other code."""

from __future__ import annotations

import math
import types
from collections.abc import Iterator

import numpy
import pytest
import torch
from torch import Tensor

from torchyard_programs._cache.repeatable import is_fixed, repeatable

FACTOR = 2.0


def _loop(x: Tensor, count: int = 2) -> Tensor:
    for _ in range(count):
        x = torch.nn.functional.relu(x) * math.pi if count else -x
    return x.clamp(min=0.5)


def _in_place(x: Tensor) -> Tensor:
    x += 1
    return x


def _nonlocal(x: Tensor) -> Tensor:
    global FACTOR
    FACTOR = 3.0
    return x


def _yields(x: Tensor) -> Iterator[Tensor]:
    yield x


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x * FACTOR, ("FACTOR",)),
        (lambda x, y: x[y] + torch.where(x > y, FACTOR, FACTOR), ("torch", "FACTOR")),
        (lambda x: x.to(torch.float16).shape[0], ("torch",)),
        (lambda x: x if x is None else x**2, ()),
        (_loop, ("range", "torch", "math")),
        (_in_place, ()),
        (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), ("torch",)),
        (lambda x: torch.div(x, FACTOR, rounding_mode="floor") + 1, ("torch", "FACTOR")),
        (lambda x: torch.nn.functional.leaky_relu(x, negative_slope=0.2), ("torch",)),
        (lambda x: torch.relu(torch.lerp(x, x, weight=0.5)), ("torch",)),
    ],
)
def test_names_from_outside_are_told(function: types.FunctionType, names: tuple[str, ...]) -> None:
    found = repeatable(function.__code__)
    assert found is not None
    assert set(found.outer) == set(names)
    assert found.sized == (function is _loop or "shape" in function.__code__.co_names)


@pytest.mark.parametrize(
    "function",
    [
        _nonlocal,
        _yields,
        lambda x: x.item(),
        lambda x: x.anything,
        lambda x: x.add_(1),
        lambda x: (lambda: x)(),
        lambda x: torch.exp(x, out=x),
        lambda x: x == "text",
        lambda x: "text",
        lambda x: x.to("cpu"),
        lambda x: torch.nn.functional.gelu("none", approximate="none"),
        lambda x: torch.div(x, rounding_mode="floor", other=2),
        lambda x: torch.add(x, other="text"),
        lambda x: torch.add(x, *("text", 1)),
        lambda x: ("other", "weight"),
        lambda x: torch.add(x, ("other",)),
        lambda x: "%s" % x,  # noqa: UP031
        lambda x: x[("text",)],
        lambda x, approximate: x,
        lambda x, **keywords: x,
        lambda x: [x],
        lambda x: (x, *x),
        lambda x: torch.rand(1),
        lambda x: f"{x}",
        lambda x: x is FACTOR,
    ],
)
def test_other_code_is_passed_over(function: types.FunctionType) -> None:
    assert repeatable(function.__code__) is None


@pytest.mark.parametrize(
    "value", [torch, torch.nn.functional, math, torch.tanh, torch.nn.functional.silu, max, range]
)
def test_torchs_functions_and_some_of_pythons_are_fixed(value: object) -> None:
    assert is_fixed(value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            types,
            numpy,
            torch.rand,
            torch.get_num_threads,
            print,
            len,
            getattr,
            globals,
            int.bit_length,
        ),
        *(lambda x: x, object(), [], {}, 1.0, torch.Tensor, torch.zeros(1), "torch"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_else_is(value: object) -> None:
    assert not is_fixed(value)

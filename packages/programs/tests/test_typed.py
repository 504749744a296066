"""Steps have the dtypes that torch gives, of scalars, tensors and plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchyard_programs import (
    Input,
    ProgramError,
    Reference,
    infer,
    is_pointwise,
    parse,
    trace,
    typed_program,
)

_CPU = torch.device("cpu")


def text_of(function: Callable[..., Any], *names: str) -> str:
    return trace(function, "fn", tuple((name, None) for name in names), _CPU)[0]


@pytest.mark.parametrize(
    ("x", "y", "dtype"),
    [
        (Input("x", torch.bfloat16, 2), Input("y", torch.float32, 0), torch.bfloat16),
        (Input("x", torch.bfloat16, 0), Input("y", torch.float32, 0), torch.float32),
        (Input("x", torch.bfloat16, 2), Input("y", torch.float32, 2), torch.float32),
        (Input("x", torch.int64, 2), Input("y", float), torch.float32),
        (Input("x", torch.float16, 2), Input("y", float), torch.float16),
        (Input("x", torch.bool, 2), Input("y", int), torch.int64),
    ],
    ids=str,
)
def test_promotion_is_torchs(x: Input, y: Input, dtype: torch.dtype) -> None:
    (step,) = typed_program(text_of(lambda x, y: x * y, "x", "y"), (x, y), ()).steps
    assert step.dtype == dtype


def test_steps_on_numbers_alone_give_numbers() -> None:
    text = text_of(lambda x, beta, step: x / (1 - beta**step), "x", "beta", "step")
    inputs = (Input("x", torch.float32, 1), Input("beta", float), Input("step", int))

    program = typed_program(text, inputs, ())

    assert [(step.word, step.dtype) for step in program.steps] == [
        ("pow", float),
        ("sub", float),
        ("div", torch.float32),
    ]
    assert program.result == Reference("%2")


def test_reversed_operators_come_as_plain_ones() -> None:
    inputs = (Input("x", torch.float32), Input("y", torch.float32))
    (step,) = typed_program(text_of(lambda x, y: torch.rsub(x, y), "x", "y"), inputs, ()).steps
    assert (step.word, step.args) == ("sub", (Reference("y"), Reference("x")))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: torch.nn.functional.gelu(x), True),
        (lambda x: x.sum(), False),
        (lambda x: torch.softmax(x, -1), False),
    ],
    ids=["gelu", "sum", "softmax"],
)
def test_words_of_the_vocabulary_are_pointwise(
    function: Callable[..., Any], expected: bool
) -> None:
    text = text_of(function, "x")
    assert is_pointwise(parse(text), (Input("x", torch.float32, 2),), ()) is expected


def test_a_step_that_gives_no_tensor_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"torch\.Tensor\.numel to give a tensor, got int"):
        infer(parse(text_of(lambda x: x.numel() * x, "x")), (Input("x", torch.float32, 1),), ())

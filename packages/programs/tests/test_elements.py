"""Programs of elements have one text for each result, and no half precision between steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch

from torchyard_programs import Input, build, element_programs, number_steps, parse, trace

_HALF: Final = Input("x0", torch.float16, 1)


def _text(function: Callable[..., Any], count: int) -> tuple[str, Any]:
    names = tuple((f"x{number}", None) for number in range(count))
    text, captured = trace(function, "fn", names, torch.device("cpu"))
    return text, tuple((one.dtype, one.ndim) for one in captured)


def test_each_result_is_a_program_in_its_own_dtype() -> None:
    text, _ = _text(lambda x, y: (x * y, x > 0, 2), 2)
    found = element_programs(text, (_HALF, Input("x1", float)), (), elements=True)
    assert found.results == (torch.float16, torch.bool, torch.int64)
    assert [(item.name, item.dtype) for item in found.inputs] == [
        ("x0", torch.float32),
        ("x1", float),
    ]
    functions = [build(parse(one), ("x0", "x1")) for one in found.texts]
    assert [function(torch.tensor(3.0), 0.5) for function in functions] == [1.5, True, 2]


def test_a_conversion_rounds_and_nothing_else_does() -> None:
    x = torch.tensor(2048.0)
    for function, wanted in (
        (lambda x: (x + 1) - 2048, 1.0),
        (lambda x: (x + 1).half() - 2048, 0.0),
        (lambda x: (x + 1).to(torch.float16) - 2048.5, -0.5),
    ):
        (text,) = element_programs(_text(function, 1)[0], (_HALF,), (), elements=True).texts
        found = build(parse(text), ("x0",))(x)
        assert (float(found), found.dtype) == (wanted, torch.float32)


def test_elements_of_captured_tensors_are_inputs_and_tensors_are_indexed() -> None:
    row = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    scale = torch.tensor(256.0, dtype=torch.bfloat16)
    text, captured = _text(lambda x: x + row, 1)
    found = element_programs(text, (_HALF,), captured, elements=True)
    assert found.inputs[1:] == (Input("c0", torch.float32, 1),)
    assert found.captured == ()
    text, captured = _text(lambda i: (row[i] + scale) - scale, 1)
    found = element_programs(text, (Input("x0", torch.int64, 1),), captured, elements=False)
    assert (found.results, found.captured) == ((torch.bfloat16,), captured)
    (one,) = found.texts
    # In bfloat16 256 + 1 is 256.
    assert float(build(parse(one), ("x0",))(torch.tensor(0), row, scale)) == 1.0


def test_steps_of_numbers_are_computed_beforehand() -> None:
    text, _ = _text(lambda x, b, t: (x / (1 - b**t), b * 2, x + t), 3)
    inputs = (_HALF, Input("x1", float), Input("x2", int))
    found = number_steps(text, inputs, ())
    assert found.inputs == (*inputs, Input("n0", float), Input("n1", float))
    assert found.computed((None, 0.5, 2)) == (0.75, 1.0)
    assert {operation.word for operation in parse(found.text).operations} == {"div", "add"}
    function = build(parse(found.text), ("x0", "x1", "x2", "n0", "n1"))
    assert function(torch.tensor(3.0), 0.5, 2, 0.75, 1.0) == (4.0, 1.0, 5.0)
    with pytest.raises(ZeroDivisionError):
        number_steps(*(_text(lambda x, a: x * (1 / a), 2)[0], inputs[:2], ())).computed((None, 0.0))


def test_a_program_without_steps_of_numbers_is_as_it_was() -> None:
    text, _ = _text(lambda x, a: torch.tanh(x) * a, 2)
    inputs = (_HALF, Input("x1", float))
    found = number_steps(text, inputs, ())
    assert (found.text, found.inputs, found.computed((None, 1.0))) == (text, inputs, ())


def test_inputs_of_numbers_are_named_by_their_places() -> None:
    with pytest.raises(ValueError, match="number_steps: inputs: expected x0 as a name, got 'y'"):
        number_steps('"y"', (Input("y", float),), ())

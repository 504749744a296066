"""What foreach_map refuses, by argument, expected and got."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchyard import TorchyardError
from torchyard_kernels import InPlaceGradientError, foreach_map, foreach_map_
from torchyard_programs import ProgramError

_ELSEWHERE = torch.ones(2, device="meta")


@pytest.mark.parametrize(
    ("lists", "error", "message"),
    [
        ((1.0, torch.ones(2)), ValueError, "expected at least one list of tensors"),
        (([torch.ones(2)], [1.0, 2.0]), ValueError, "argument 1: expected a list of 1 .* got 2"),
        (([torch.ones(2)], ["a"]), TypeError, "argument 1: expected a tensor, .* got 'a'"),
        (([torch.ones(2), 1.0], 1.0), TypeError, "argument 0: .* got one with float among"),
        (([1.0], 2), ValueError, "expected at least one tensor, got numbers alone"),
        (([torch.ones(2)], 2**60), ValueError, r"argument 1: expected integers of at most 2\*\*53"),
        ((iter([torch.ones(2)]), 1.0), TypeError, "argument 0: .* got a list_iterator"),
        (([torch.ones(2)], [torch.ones(3)]), ValueError, r"to broadcast, got \[2\] and \[3\]"),
        (([torch.ones(2)], [_ELSEWHERE]), TypeError, "on one device, got cpu and meta; move one"),
        (([_ELSEWHERE], [torch.ones(2)]), TypeError, "on one device, got meta and cpu; move one"),
        (([torch.ones(2)],), ProgramError, r"takes \(x0\), got <lambda>\(x, y\)"),
    ],
    ids=[
        *("no list", "lengths", "str", "mixed", "numbers", "large"),
        *("iterator", "shapes", "device", "other device", "arity"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    lists: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        foreach_map(lambda x, y: x, *lists)


def test_what_is_not_pointwise_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"pointwise operations, got one of torch\.softmax"):
        foreach_map(lambda x: torch.softmax(x, -1), [torch.ones(3)])
    with pytest.raises(ProgramError, match="foreach_map: expected a function that returns some"):
        foreach_map(lambda x: (), [torch.ones(3)])
    with pytest.raises(ProgramError, match="returns a tensor or a number, got None"):
        foreach_map(lambda x: None, [torch.ones(3)])
    with pytest.raises(ProgramError, match=r"pointwise operations, got one of torch\.matmul"):
        foreach_map(lambda x: x @ x, [torch.ones(3)])


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        ([[torch.ones(3)]], ValueError, r"group 0 \[2, 3\], got \[3\]"),
        ([[torch.ones(2, 3, dtype=torch.int64)]], TypeError, "float32 cannot be .* of int64"),
        ([[torch.ones(2, 3)] * 2], ValueError, "expected lists of 1"),
        ([], ValueError, "out: expected 1 lists, one per result, got 0"),
        ([torch.ones(2, 3)], TypeError, "out: expected a list of tensors .*, got Tensor"),
        ([[torch.ones(2, 3, device="meta")]], TypeError, "on one device, got cpu and meta"),
    ],
    ids=["shape", "dtype", "length", "results", "no lists", "device"],
)
def test_what_cannot_be_written_to_is_refused(
    out: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        foreach_map_(lambda x, y: x + y, [torch.ones(2, 3)], [torch.ones(3)], out=out)


def test_in_place_on_recorded_gradients_is_refused_with_a_typed_error() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(InPlaceGradientError, match=r"call it under torch\.no_grad\(\)") as error:
        foreach_map_(lambda x: x * 2, [x])
    assert isinstance(error.value, TorchyardError)
    with torch.no_grad():
        foreach_map_(lambda x: x * 2, [x])
    assert torch.equal(x.detach(), torch.full((3,), 2.0))


def test_what_cannot_be_written_is_refused_whatever_was_tried_before() -> None:
    for _ in range(3):
        counts = torch.ones(3, dtype=torch.int32)
        with pytest.raises(TypeError, match="float32 cannot be written to a tensor of int32"):
            foreach_map_(lambda x: x * 0.5, [torch.ones(3)], out=[[counts]])
        assert counts.tolist() == [1, 1, 1]


def test_what_has_no_memory_for_each_element_is_not_written_to() -> None:
    for expanded in (False, True, True):
        out = torch.ones(1, 3).expand(2, 3) if expanded else torch.ones(2, 3)
        if not expanded:
            foreach_map_(lambda x: x + 0.25, [torch.ones(2, 3)], out=[[out]])
            continue
        with pytest.raises(ValueError, match="out: expected tensors with memory for each element"):
            foreach_map_(lambda x: x + 0.25, [torch.ones(2, 3)], out=[[out]])


def test_large_integers_are_refused_after_any_call() -> None:
    x = torch.ones(3)
    for number in (1, 2, 2**53 + 1, 2**60, -(2**60)):
        if abs(number) <= 2**53:
            assert foreach_map(lambda x, y: x + y, [x], number)[0].tolist() == [1.0 + number] * 3
            continue
        with pytest.raises(ValueError, match=r"integers of at most 2\*\*53"):
            foreach_map(lambda x, y: x + y, [x], number)

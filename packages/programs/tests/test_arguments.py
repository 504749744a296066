"""What does not fit is refused by the name of the argument, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_programs import (
    Input,
    Operation,
    Program,
    ProgramError,
    Recordings,
    Reference,
    build,
    infer,
    is_pointwise,
    is_readable_on,
    parse,
    pullback,
    pushforward,
    result_count,
    stored,
    trace,
    typed_program,
)

_CPU = torch.device("cpu")
_SCALE = torch.tensor([2.0, 3.0])
_TEXT = trace(lambda x, y: x * _SCALE + y, "fn", (("x", None), ("y", None)), _CPU)[0]
_PROGRAM = parse(_TEXT)
_BOTH = (Input("x", torch.float32, 1), Input("y", torch.float32, 1))
_TRAITS = ((torch.float32, 1),)
_AHEAD = Program((Operation(Reference("%0"), "sin", (Reference("%1"),), ()),), Reference("%0"))
_ONE = torch.ones(2)

_ANY: Any = None


def _twice(x: Tensor) -> tuple[Tensor, ...]:
    return (x * 2,)


def _record(function: Callable[..., Any], device: torch.device) -> tuple[str, list[Tensor]]:
    return trace(function, "fn", (("x", None),), device)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # Text that no tracer wrote.
        (lambda: parse('["sin",["x"]]\n"%0"'), r"parse: text: expected a program's text.*'\[\"sin"),
        (lambda: parse('{"complex":1}'), "parse: text: .*complex"),
        (lambda: parse('{"dtype":"nn"}'), "parse: text: .*nn"),
        (lambda: parse('{"slice":[null]}'), "parse: text: .*slice"),
        (lambda: parse('""'), "parse: text: "),
        (lambda: result_count("None"), "result_count: text: expected a program's text"),
        # Programs that read what is not there: once silent, or an error of a later call.
        (lambda: build(_PROGRAM, ("x",)), "build: inputs: expected all that .* y among them"),
        (lambda: build(_PROGRAM, ("x", "y", "x")), "build: inputs: expected each with another"),
        (lambda: build(_PROGRAM, ("x", "1 + 1")), r"build: inputs\[1\]: expected an identifier"),
        (lambda: build(_AHEAD, ()), "build: program: .* one that reads %1"),
        (lambda: infer(_PROGRAM, _BOTH, ()), r"infer: captured: expected the tensor \$0 .* got 0"),
        (lambda: infer(_PROGRAM, _BOTH[:1], _TRAITS), "infer: inputs: .* y among them, got x"),
        (lambda: is_pointwise(_PROGRAM, _BOTH, ((_ANY, 1),)), r"is_pointwise: captured\[0\]\[0\]:"),
        (lambda: typed_program(_TEXT, _BOTH, ((torch.float32, -1),)), r"captured\[0\]\[1\]: .* -1"),
        # A conversion of no step was left out.
        (
            lambda: build(_PROGRAM, ("x", "y"), casts={"%7": (torch.float16,)}),
            "build: casts: expected steps of the program, got '%7'",
        ),
        (
            lambda: build(_PROGRAM, ("x", "y"), casts={"%0": (_ANY,)}),
            r"build: casts\['%0'\]\[0\]: expected a torch.dtype, got None",
        ),
        # Two inputs of one name were one.
        (
            lambda: trace(lambda x, y: x - y, "fn", (("x", None), ("x", None)), _CPU),
            "trace: inputs: expected names that are identifiers, each another, got 'x'",
        ),
        (lambda: Input("x", torch.float32, 1 << 40), "Input: ndim: expected an int of 0 to 1024"),
        (lambda: pullback(_twice, (), (_ONE,)), "pullback: primals: .* at least 1, got 0"),
        (lambda: pullback(_twice, (_ONE,), (_ONE, _ONE)), "pullback: slopes: .* 1, got 2"),
        (lambda: pullback(_twice, (_ONE,), (torch.ones(3),)), r"slopes\[0\]: expected shape \[2\]"),
        (lambda: pushforward(_twice, (_ONE,), ()), "pushforward: tangents: .* of 1, got 0"),
        (
            lambda: pushforward(_twice, (_ONE,), (torch.ones(3),)),
            r"pushforward: tangents\[0\]: expected shape \[2\], got \[3\]",
        ),
        (
            lambda: pullback(lambda x: x, (_ONE,), (_ONE,)),
            "pullback: function: expected a function that returns a tuple of tensors",
        ),
        (lambda: stored([_ONE, _ANY]), "stored: captured: expected tensors, got None"),
        (lambda: is_readable_on(_ONE, "sea"), "is_readable_on: device: "),  # type: ignore[arg-type]
        (lambda: Recordings(_record).interned(_ANY), "interned: text: expected a string, got None"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    assert not isinstance(caught.value, ProgramError)


def test_a_word_that_torch_does_not_have_is_a_program_error() -> None:
    program = parse('["torch.nothing.such",["x"],{}]\n"%0"')
    with pytest.raises(ProgramError, match=r"program: .*'torch\.nothing\.such'"):
        build(program, ("x",))


def test_what_stands_for_an_argument_is_taken() -> None:
    names: Any = ["x", "y"]
    function = build(_PROGRAM, names, casts={})
    assert torch.equal(function(_ONE, _ONE, _SCALE), torch.tensor([3.0, 4.0]))
    given: Any = list(_BOTH)
    assert typed_program(_TEXT, given, _TRAITS) is typed_program(_TEXT, _BOTH, _TRAITS)
    assert torch.equal(pullback(_twice, [_ONE], [None])[0], torch.zeros(2))
    assert Recordings(_record).cached_recording(_ANY) is None

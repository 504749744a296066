"""Each word of the vocabulary, lowered to Triton, gives what torch gives in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from packages.programs.tests.words import WORDS, Word
from packages.programs.tests.words import values as values_of
from packages.triton.tests.elementwise import computed, derivatives, traced
from torchyard_programs import build, parse
from torchyard_triton.lowering._emission import FLOAT64_FUNCTIONS

_NAMES = ("x", "y", "i", "j")
_EPS = torch.finfo(torch.float32).eps
_IN_FLOAT64 = {
    **{name: getattr(torch, name) for name in FLOAT64_FUNCTIONS - {"power", "round_even"}},
    "power": torch.pow,
    "round_even": torch.round,
}
_OF_TWO = ("floor_divide", "fmod", "power", "remainder")


def _wide(values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(value.double() if value.is_floating_point() else value for value in values)


def _check(got: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert got.shape == wanted.shape
    got, wanted = got.double(), wanted.double()
    finite = wanted.isfinite()
    torch.testing.assert_close(got[~finite], wanted[~finite], equal_nan=True)
    scale = wanted[finite].abs().clamp_min(1.0)
    worst = ((got[finite] - wanted[finite]).abs() / scale).max().item() if finite.any() else 0.0
    assert worst <= tolerance * _EPS, f"{worst / _EPS:.1f} roundings"


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.word)
def test_word(word: Word) -> None:
    values = values_of(word)
    program = traced(word.function)
    function = build(parse(program.text), _NAMES)
    narrow = function(*values)
    rounded = narrow.dtype in (torch.float16, torch.bfloat16) or word.word == "to"
    wanted = narrow if rounded else function(*_wide(values))
    got = computed(word.function, values, narrow.dtype)
    tolerance = word.tolerance
    if narrow.dtype == torch.bfloat16:
        tolerance = 4 * torch.finfo(torch.bfloat16).eps / _EPS  # the interpreter truncates
    _check(got, wanted.to(torch.float64), tolerance if narrow.is_floating_point() else 0.0)


@pytest.mark.parametrize("word", [word for word in WORDS if word.slope], ids=lambda word: word.word)
def test_derivative(word: Word) -> None:
    values = values_of(word, special=False)
    function = build(parse(traced(word.function).text), _NAMES)
    x, y, i, j = _wide(values)
    leaves = [x.requires_grad_(), y.requires_grad_()]
    result = function(*leaves, i, j)
    wanted = [torch.zeros_like(x), torch.zeros_like(y)]
    if result.requires_grad:
        wanted = list(
            torch.autograd.grad(result.sum(), leaves, allow_unused=True, materialize_grads=True)
        )
    for got, exact in zip(derivatives(word.function, values), wanted, strict=True):
        _check(got, exact, word.tolerance * 4)


@pytest.mark.parametrize("name", sorted(_IN_FLOAT64))
def test_function_in_float64(name: str) -> None:
    function = _IN_FLOAT64[name]

    def program(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        wide = x.double()
        return function(wide, y.double()) if name in _OF_TWO else function(wide)

    x, y, i, j = values_of(Word(name, program))
    if name != "power":
        y = torch.where(y.abs() < 0.1, 0.1, y)
    wanted = program(x, y, i, j)
    got = computed(program, (x, y, i, j), wanted.dtype)
    _check(got, wanted, 64 * torch.finfo(torch.float64).eps / _EPS)

"""Each word of the vocabulary, lowered to Triton, gives what torch gives in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from packages.triton.tests.elementwise import computed, derivatives, traced
from packages.triton.tests.words import WORDS, Word
from torchyard_programs import build, parse
from torchyard_programs._program.vocabulary import REVERSED
from torchyard_programs._program.vocabulary import WORDS as VOCABULARY

_NAMES = ("x", "y", "i", "j")
_SIZE = 128
_EPS = torch.finfo(torch.float32).eps


def _values(word: Word, *, special: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(_SIZE, generator=generator) * 3.0 for _ in range(2))
    i, j = (torch.randint(-9, 10, (_SIZE,), generator=generator) for _ in range(2))
    if special and word.domain is None:
        corners = torch.tensor(
            [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, torch.inf, -torch.inf, torch.nan]
        )
        x[: corners.numel()] = corners
        x[16 : 16 + corners.numel()] = corners
        y[16 : 16 + corners.numel()] = corners.flip(0)
        x[32:36] = y[32:36]
    return x if word.domain is None else word.domain(x), y, i, j


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


def test_each_word_is_tried() -> None:
    assert {word.word for word in WORDS} | set(REVERSED) | {"getitem"} == VOCABULARY | set(REVERSED)


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.word)
def test_word(word: Word) -> None:
    values = _values(word, special=True)
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
    values = _values(word, special=False)
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

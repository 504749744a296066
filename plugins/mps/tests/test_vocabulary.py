"""Each word of the vocabulary, lowered to Metal, gives what torch gives in float64."""

from __future__ import annotations

from typing import Final

import pytest
import torch
from torch import Tensor

from packages.programs.tests.words import WORDS, Word, values
from plugins.mps.tests.elementwise import INPUTS, computed
from torchyard_conformance import metal
from torchyard_mps.lowering import lower
from torchyard_programs import UnsupportedProgramError, build, parse, trace

_NAMES: Final = tuple(item.name for item in INPUTS)
_EPS: Final = torch.finfo(torch.float32).eps
# Metal has no float64.
_TRIED: Final = [word for word in WORDS if word.word != "double"]


def _function(word: Word) -> tuple[str, tuple[Tensor, ...]]:
    inputs = tuple((item.name, item.dtype) for item in INPUTS)
    text, captured = trace(word.function, "fn", inputs, torch.device("cpu"))
    return text, tuple(captured)


def _wanted(word: Word) -> Tensor:
    arguments = values(word)
    function = build(parse(_function(word)[0]), _NAMES)
    narrow: Tensor = function(*arguments)
    if narrow.dtype in (torch.float16, torch.bfloat16) or word.word == "to":
        return narrow
    wide = (value.double() if value.is_floating_point() else value for value in arguments)
    return function(*wide).to(narrow.dtype if not narrow.is_floating_point() else torch.float64)


@pytest.fixture(scope="module")
def results() -> tuple[list[Tensor], list[metal.Finding]]:
    cases = []
    for word in _TRIED:
        wanted = _wanted(word)
        is_wide = wanted.dtype == torch.float64
        dtype = torch.float32 if is_wide else wanted.dtype
        cases.append((word.function, values(word), dtype))
    return computed(cases)


@pytest.mark.parametrize("number", range(len(_TRIED)), ids=[word.word for word in _TRIED])
def test_word(number: int, results: tuple[list[Tensor], list[metal.Finding]]) -> None:
    word, wanted = _TRIED[number], _wanted(_TRIED[number]).double()
    got = results[0][number].double()
    finite = wanted.isfinite()
    torch.testing.assert_close(got[~finite], wanted[~finite], equal_nan=True)
    scale = wanted[finite].abs().clamp_min(1.0)
    worst = ((got[finite] - wanted[finite]).abs() / scale).max().item()
    assert worst <= word.tolerance * _EPS, f"{worst / _EPS:.1f} roundings"


def test_nothing_is_wrong_with_the_kernels(
    results: tuple[list[Tensor], list[metal.Finding]],
) -> None:
    assert results[0]
    # A conversion of what another type does not hold is torch's to define.
    found = [str(finding) for finding in results[1] if finding.kind != "half-overflow"]
    assert not found


def test_float64_is_refused_by_name() -> None:
    (word,) = [word for word in WORDS if word.word == "double"]
    text, _ = _function(word)
    with pytest.raises(UnsupportedProgramError, match="float64, which Metal does not have"):
        lower(text, INPUTS, (), result="float32")

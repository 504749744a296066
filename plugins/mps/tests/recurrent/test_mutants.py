"""Faults planted in the kernels of recurrent layers are found, each by what it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest
import torch

from packages.kernels.tests.recurrent.cases import Case, misses
from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.mutants import planted
from torchyard_kernels.recurrent.contract import RecurrentKind
from torchyard_kernels.recurrent.implementations.steps import steps_forward
from torchyard_mps.recurrent import _source, forward

_LSTM: Final = Case(RecurrentKind.LSTM, steps=2, batch=2, inputs=2, hidden=3)
_GRU: Final = replace(_LSTM, kind=RecurrentKind.GRU)
_RNN: Final = replace(_LSTM, kind=RecurrentKind.RNN_TANH)
_RELU: Final = replace(_LSTM, kind=RecurrentKind.RNN_RELU)
_RAGGED: Final = replace(_LSTM, ragged=True, batch=4, bidirectional=True)
_MANY: Final = replace(_RNN, batch=11, hidden=6)
_DEEP: Final = replace(_RNN, hidden=40)
_PROJECTED: Final = replace(_LSTM, proj=2)
# One column of the output is another direction's.
_BOTH: Final = replace(_RNN, bidirectional=True)

# What is planted, the case that shows it, and the finding that names it; empty: its values.
_MUTANTS: Final[list[tuple[str, str, Case, str]]] = [
    ("step[0] < long(lengths[row])", "step[0] <= long(lengths[row])", _RAGGED, ""),
    ("there ? rounded : before[own]", "rounded", _RAGGED, ""),
    ("if (there) cell[own]", "cell[own]", _RAGGED, ""),
    ("k = lane;", "k = lane + 1;", _DEEP, ""),
    ("k < size;", "k < min(size, 32l);", _DEEP, ""),
    ("k < size;", "k <= size;", _LSTM, "out-of-bounds"),
    ("sizes[kBatch] - first", "sizes[kBatch]", _MANY, "out-of-bounds"),
    ("begin + kUnits, hidden", "begin + kUnits, hidden + 1", _MANY, "out-of-bounds"),
    ("sums[i] = simd_sum(sums[i])", "", _DEEP, ""),
    ("value + keep * (", "value + (1.0f - keep) * (", _GRU, ""),
    ("reset * inner", "inner", _GRU, ""),
    ("input_bias[gate * hidden + unit]", "input_bias[unit]", _LSTM, ""),
    ("forget * cell[own]", "cell[own]", _LSTM, ""),
    ("sum < 0.0f ? 0.0f : sum", "sum", _RELU, ""),
    ("hidden * sizes[kWeight], sizes", "0, sizes", _LSTM, ""),
    ("row * sizes[kOutputRow]", "row * outputs", _BOTH, "stride"),
    ("put_state(sums[i]", "put_state(sums[0]", _PROJECTED, ""),
    ("kept[part * hidden] =", "kept[part] =", _GRU, "race"),
    ("sizes[kReserveRow] - outputs + at", "at", _GRU, ""),
]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    _source.source_of.cache_clear()
    yield
    _source.source_of.cache_clear()


def _wrong(case: Case) -> list[str]:
    """Return what of a case is further from float64 than roundings explain."""
    call = replace(case.call(), reserve=True)
    with emulated():
        result = forward(call)
    found = misses(result, call)
    kept, right = result.reserve, steps_forward(call).reserve
    assert kept is not None
    assert right is not None
    if not torch.allclose(kept, right, rtol=1e-4, atol=1e-5):
        found.append("reserve")
    return found


@pytest.mark.parametrize("case", {case: None for _, _, case, _ in _MUTANTS}, ids=str)
def test_without_it_nothing_is_wrong(case: Case) -> None:
    assert _wrong(case) == []


@planted(_MUTANTS, "case")
def test_mutant_is_caught(
    right: str, wrong: str, case: Case, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _source.metal_text
    assert right in text("recurrent/forward")
    monkeypatch.setattr(_source, "metal_text", lambda *of: text(*of).replace(right, wrong))
    if finding:
        with pytest.raises(AssertionError, match=f"{finding}:"):
            _wrong(case)
    else:
        assert _wrong(case)

"""Faults planted in the kernels of gradients are found, by a finding or by values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from packages.kernels.tests.recurrent.suite import gradient_ratio
from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.mutants import planted
from torchyard_conformance._kernels._cases._recurrent import BackwardCase
from torchyard_conformance._outcome import Violated
from torchyard_kernels.recurrent.contract import RecurrentKind
from torchyard_mps.recurrent import _source, backward

_LSTM: Final = BackwardCase("lstm", kind=RecurrentKind.LSTM, steps=2, sequences=2, hidden=3)
_GRU: Final = replace(_LSTM, name="gru", kind=RecurrentKind.GRU)
_RNN: Final = replace(_LSTM, name="rnn", kind=RecurrentKind.RNN_TANH)
_RELU: Final = replace(_LSTM, name="relu", kind=RecurrentKind.RNN_RELU)
_RAGGED: Final = replace(
    _LSTM, name="ragged", ragged=True, steps=3, sequences=4, bidirectional=True
)
_RAGGED_GRU: Final = replace(_RAGGED, name="ragged-gru", kind=RecurrentKind.GRU)
_RAGGED_RNN: Final = replace(_RAGGED, name="ragged-rnn", kind=RecurrentKind.RNN_TANH)
_MANY: Final = replace(_RNN, name="many", sequences=11, hidden=35)
_PROJECTED: Final = replace(_LSTM, name="projected", proj=2, ragged=True, steps=3, sequences=4)
_BOTH: Final = replace(_RNN, name="both", bidirectional=True)
_TRANSPOSED: Final = replace(_PROJECTED, name="transposed", layout="transposed")

# What is planted, the case that shows it, and the finding that names it; empty: its values.
_MUTANTS: Final[list[tuple[str, str, BackwardCase, str]]] = [
    ("place[kStep] < length", "place[kStep] <= length", _RAGGED, ""),
    ("place[kEarlier] >= length", "place[kEarlier] >= sizes[kSteps]", _RAGGED_GRU, ""),
    ("place[kEarlier] < 0 ||", "", _LSTM, "out-of-bounds"),
    ("if (step.there) to.grad_cell", "to.grad_cell", _RAGGED, ""),
    ("if (!step.there)", "if (false)", _RAGGED, ""),
    ("OUTPUT && step.there", "OUTPUT", _RAGGED, ""),
    (
        "k = me / kColumns; inside && k < count",
        "k = me / kColumns; k < count",
        _RNN,
        "out-of-bounds",
    ),
    ("k < count; k += kParts", "k < count - 1; k += kParts", _RNN, ""),
    ("part < kParts; part++", "part < kParts - 1; part++", _LSTM, ""),
    ("    parts[(me / kColumns", "  parts[(me % kColumns", _RNN, "race"),
    ("  threadgroup_barrier(mem_flags::mem_threadgroup);\n", "", _RNN, "missing-barrier"),
    ("sizes[kBatch] - first", "sizes[kBatch]", _MANY, "out-of-bounds"),
    ("column >= outputs", "column > outputs", _MANY, "out-of-bounds"),
    ("if (unit >= units)", "if (unit > units)", _PROJECTED, "out-of-bounds"),
    ("own_column * sizes[kWeight + 1]", "own_column * sizes[kWeight]", _RNN, "out-of-bounds"),
    ("own_unit * sizes[kProjection + 1]", "own_unit", _TRANSPOSED, ""),
    ("row * sizes[kOutput]", "row * outputs", _BOTH, "stride"),
    ("+ passed[own]", "", _GRU, ""),
    ("passed[own] = gradient;\n      continue", "continue", _GRU, ""),
    ("gradient * reserve[kept + outputs + column]", "gradient", _GRU, ""),
    ("through * forget;", "through;", _LSTM, ""),
    ("to.grad_cell[own] + gradient", "gradient", _LSTM, ""),
    ("step.begins ? to.cell[own]", "false ? to.cell[own]", _LSTM, "out-of-bounds"),
    ("step.begins ? hidden[own]", "true ? hidden[own]", _GRU, ""),
    ("number == 2 ? inner", "number == 3 ? inner", _GRU, ""),
    ("(before - value)", "before", _GRU, ""),
    ("state > 0.0f ? 1.0f", "state > -1.0f ? 1.0f", _RELU, ""),
    ("to.unprojected[own] = out * squashed", "to.unprojected[own] = squashed", _PROJECTED, ""),
    ("step.there ? sums[number] : 0.0f", "sums[number]", _RAGGED_RNN, ""),
]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    _source.source_of.cache_clear()
    yield
    _source.source_of.cache_clear()


def _worst(case: BackwardCase) -> float:
    with emulated():
        return gradient_ratio(case, backward)


@pytest.mark.parametrize("case", {case: None for _, _, case, _ in _MUTANTS}, ids=str)
def test_without_it_nothing_is_wrong(case: BackwardCase) -> None:
    assert _worst(case) <= 1


@planted(_MUTANTS, "case")
def test_mutant_is_caught(
    right: str,
    wrong: str,
    case: BackwardCase,
    finding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = _source.metal_text
    assert right in text("recurrent/gradient")
    monkeypatch.setattr(_source, "metal_text", lambda *of: text(*of).replace(right, wrong))
    if finding:
        with pytest.raises(AssertionError, match=f"{finding}:"):
            _worst(case)
    else:
        with pytest.raises(Violated):
            _worst(case)

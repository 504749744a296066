"""Recurrent layers of every kind keep their dynamic sizes through every form of a program."""

from __future__ import annotations

import pytest

from packages.export.tests.models.recurrent import Cell, cells
from packages.export.tests.programs.matrix import ours
from packages.export.tests.programs.stock import stock

_FORMS = {"decompositions", "export", "pt2"}
# One of each kind and of each flag; `nox -s sweep` takes all of them.
_SOME = (
    Cell("LSTM", 2, True, True, True, True, False, "both"),
    Cell("LSTM", 1, True, False, False, False, True, "both"),
    Cell("GRU", 2, True, True, False, True, False, "both"),
    Cell("GRU", 1, False, False, False, False, False, "time"),
    Cell("RNN-tanh", 2, False, True, False, False, False, "time"),
    Cell("RNN-relu", 1, True, False, False, True, False, "batch"),
)


@pytest.mark.parametrize("cell", _SOME, ids=str)
def test_a_recurrent_layer_passes_in_every_form(cell: Cell) -> None:
    assert ours(cell, ("pt2",)) == dict.fromkeys(_FORMS, "passed")


@pytest.mark.sweep
@pytest.mark.parametrize("cell", list(cells()), ids=str)
def test_every_recurrent_layer_passes_in_every_form(cell: Cell) -> None:
    assert ours(cell, ("pt2",)) == dict.fromkeys(_FORMS, "passed")


def test_every_kind_of_layer_has_a_cell() -> None:
    found = list(cells())
    assert len(found) == len(set(found)) == 480


def test_torch_alone_refuses_dynamic_time_or_freezes_it() -> None:
    found = stock(_SOME[3])
    assert found["export, Dim"].startswith("refused: UserError: Constraints violated")
    assert found["export, Dim.AUTO"].startswith("frozen: ")

"""A plugin with a fault is not certified by a whole quick run, and its sound twin is."""

from __future__ import annotations

from pathlib import Path

import pytest

from .planted_faults import FAULTS, Fault, certified, installed

# A whole run each; `nox -s rehearsal` prints them as a table.
pytestmark = pytest.mark.sweep


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.plugin)
def test_its_law_keeps_it_from_being_certified(fault: Fault, tmp_path: Path) -> None:
    verdict = certified(fault, tmp_path)
    assert verdict.right, verdict.row
    if fault.law:
        return
    found = [(status, said) for _, status, said in installed(fault, tmp_path)]
    assert [status for status, _ in found] == [0, 0, 0, 1]
    assert [said for _, said in found] == [
        "certified",
        "certified",
        "certified, but this is not what is installed here",
        "certified, and refused: not what is installed here",
    ]

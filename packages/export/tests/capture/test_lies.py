"""Each of the twelve models that lie is caught by its own name, at its own line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from packages.export.tests.programs.lies import LIES, Lie, caught
from packages.export.tests.programs.lying import offered
from torchyard_export import FindingKind

# Kinds that a user's line causes; the others are of a call, a file or another thread.
_WITHOUT_LINE = {FindingKind.GRU_RESET_ORDER}


@pytest.fixture(autouse=True)
def _lying_target() -> Iterator[None]:
    with offered():
        yield


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
def test_a_model_that_lies_is_caught_by_name(lie: Lie, capsys: pytest.CaptureFixture[str]) -> None:
    error = caught(lie)
    # torch prints the graph of what fails.
    assert "torch.ops" not in capsys.readouterr().err
    assert error is not None
    assert {finding.kind for finding in error.findings} == {lie.kind}
    if lie.kind not in _WITHOUT_LINE:
        name, _, number = error.findings[0].where.rpartition(":")
        assert name.endswith("lies.py")
        assert int(number) > 0
    assert error.findings[0].remedy in str(error)


def test_there_are_twelve_of_them() -> None:
    assert len({lie.kind for lie in LIES}) == 12

"""Operators of ours on a device that lacks torch's: values and gradients are those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
import torch

from plugins.mps.tests.operators.cases import CASES
from plugins.simulated.tests.apple.runs import run
from plugins.simulated.tests.apple.stand_in import DEVICE, missing
from torchyard_mps.operators import register
from torchyard_mps.operators._calls import recorded
from torchyard_mps.operators.replacements import REPLACEMENTS

_OPERATORS: Final = {one.program: one.operators for one in REPLACEMENTS}
_ALL: Final = [operator for operators in _OPERATORS.values() for operator in operators]


@pytest.fixture(scope="module")
def ours(loaded_device: None) -> Iterator[None]:
    with missing(*_ALL), register(DEVICE) as registration:
        assert all(one.registered for one in registration.replaced), str(registration)
        yield


@pytest.mark.filterwarnings("ignore::torchyard_mps.operators.ComputedOnCpuWarning")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_cpu(ours: None, name: str) -> None:
    case = CASES[name]
    with recorded() as calls:
        found = run(case, DEVICE)
    assert {call.operator for call in calls} & set(_OPERATORS[case.program]), calls
    expected = run(case, "cpu")
    torch.testing.assert_close(found.results, expected.results, equal_nan=True)
    torch.testing.assert_close(found.gradients, expected.gradients, equal_nan=True)


def test_every_replacement_has_cases() -> None:
    # Those of GradScaler are in test_scaler.py.
    names = {name.removesuffix(", gradient") for name in _OPERATORS if "GradScaler" not in name}
    assert names == {case.program.removesuffix(", gradient") for case in CASES.values()}

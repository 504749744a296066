"""Every op on a device with memory of its own, as on an accelerator: this tree's simulated one.

What tests of accelerators call is called here too, with the device's own backend.
"""

from __future__ import annotations

import pytest

from .cases import CASES
from .checks import check_gradients, check_values

# Those that take part in every run.
_FEW = ("all_to_all uneven", "async_op")
_NAMES = [
    pytest.param(case.name, marks=[] if case.name in _FEW else [pytest.mark.sweep])
    for case in CASES
]


@pytest.mark.parametrize("name", _NAMES)
def test_values_are_those_of_the_dense_program_on_the_cpu(name: str) -> None:
    check_values(name, 2, backend="simulated", device="simulated", fresh=True)


@pytest.mark.parametrize("name", _NAMES)
def test_gradients_are_too(name: str) -> None:
    modes = ("eager", "double")
    check_gradients(*(name, "sum", 2, *modes), backend="simulated", device="simulated", fresh=True)

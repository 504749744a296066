"""Products in Metal are as near to float64 as a naive computation, and have no finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from packages.kernels.tests.linear.calls import CALL, computed, excess, normal, with_functions
from packages.kernels.tests.linear.suite import LinearSuite, call_with
from plugins.mps.tests.emulated import emulated
from torchyard_kernels.linear.contract import LinearCall
from torchyard_mps.linear import multiply, product


class TestLinear(LinearSuite):
    """The suite of every implementation; a finding is an error."""

    blocked: ClassVar[bool] = False
    examples: ClassVar[int] = 6

    def compute(self, call: LinearCall) -> Tensor:
        """Compute a call."""
        with emulated():
            return multiply(call)


def test_a_product_is_rounded_once_to_another_dtype() -> None:
    call = replace(CALL, bias=None)
    with emulated():
        wide, narrow = product(call, torch.float32), multiply(call)
    assert wide.dtype == torch.float32
    assert torch.equal(wide.half(), narrow)
    exact = computed(call, torch.float64)
    assert (wide.double() - exact).abs().max() < 1e-5 * exact.abs().max()


def test_orders_of_threads_change_nothing() -> None:
    with emulated(orders=3, address_sanitizer=True):
        assert excess(CALL, multiply) <= 1
        assert excess(call_with("shifted-column", "tile"), multiply) <= 1


def test_as_many_tensors_as_there_are_buffers_for() -> None:
    columns = [normal(38, seed=seed) / 8 for seed in range(24)]

    def added(y: Any) -> Any:
        for column in columns:
            y = y + column
        return y

    with emulated():
        assert excess(with_functions(epilogue=added), multiply) <= 1
    columns.append(columns[0] + 1)
    with pytest.raises(ValueError, match="multiply: functions: expected at most 24 captured"):
        multiply(with_functions(epilogue=added))

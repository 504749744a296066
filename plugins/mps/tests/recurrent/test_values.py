"""Recurrent layers in Metal are as near to float64 as a naive computation, and have no finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch

from packages.kernels.tests.recurrent.cases import Case, misses
from packages.kernels.tests.recurrent.suite import RecurrentSuite, tensors_of
from plugins.mps.tests.emulated import emulated, fill
from torchyard_conformance._kernels._cases._recurrent import BackwardCase
from torchyard_kernels.recurrent.contract import (
    RecurrentCall,
    RecurrentGradients,
    RecurrentKind,
    RecurrentResult,
)
from torchyard_mps._launch import Launch
from torchyard_mps._runner import runs_by
from torchyard_mps.recurrent import backward, forward
from torchyard_mps.recurrent._gradient_steps import GradientSteps
from torchyard_mps.recurrent._steps import LayerSteps


class TestRecurrent(RecurrentSuite):
    """The suite of every implementation; a finding is an error."""

    examples: ClassVar[int] = 5

    def forward(self, call: RecurrentCall) -> RecurrentResult:
        """Compute a call's outputs."""
        with emulated():
            return forward(call)

    def backward(self, call: RecurrentCall, *given: Any) -> RecurrentGradients:
        """Compute gradients."""
        with emulated():
            return backward(call, *given)


@pytest.mark.parametrize("proj", [0, 3])
@pytest.mark.parametrize("width", [16, 64])
def test_simdgroups_of_other_widths_compute_it_too(width: int, proj: int) -> None:
    def run(launch: Launch) -> None:
        # A product's matrices are those of 32 lanes.
        own = 32 if launch.kernel == "linear_product" else width
        fill(launch, orders=2, simd_widths=(own,), address_sanitizer=True)

    case = Case(RecurrentKind.LSTM, steps=1, batch=9, hidden=6, proj=proj, ragged=True)
    call = replace(case.call(), reserve=True)
    with runs_by(run):
        assert misses(forward(call), call) == []


@pytest.mark.parametrize("proj", [0, 4])
def test_threads_of_other_orders_give_equal_bits(proj: int) -> None:
    case = BackwardCase("", kind=RecurrentKind.LSTM, steps=2, hidden=35, proj=proj, ragged=True)
    call, reserve, *rest = case.given()
    results, found = [], []
    for options in ({}, {"orders": 3, "address_sanitizer": True}):
        with emulated(**options):
            results.append(forward(call))
            found.append(tensors_of(backward(call, reserve, *rest)))
    assert torch.equal(results[0].output, results[1].output)
    assert torch.equal(results[0].hidden, results[1].hidden)
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize(("proj", "count"), [(0, 1), (3, 2)])
def test_each_step_is_one_launch_and_a_projection_another(proj: int, count: int) -> None:
    call = Case(RecurrentKind.LSTM, steps=1, proj=proj).call()
    outputs = call.hidden.shape[2]
    output = torch.empty((1, 3, outputs))
    steps = LayerSteps(call, 0, torch.zeros(1, 3, 24), output, None, None)
    assert len(steps.launches(0)) == count


@pytest.mark.parametrize(("proj", "count"), [(0, 4), (3, 7)])
def test_a_step_of_gradients_is_one_launch_too(proj: int, count: int) -> None:
    call, reserve, *_ = BackwardCase("", kind=RecurrentKind.LSTM, steps=3, proj=proj).given()
    steps = GradientSteps(call, 0, reserve[0], None, None, None, None)
    # One more leaves the gradient of the state at the start.
    assert len(list(steps.launches())) == count

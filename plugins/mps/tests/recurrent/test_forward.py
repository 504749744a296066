"""Recurrent layers in Metal are as near to float64 as a naive computation, and have no finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from hypothesis import given, settings

from packages.kernels.tests.recurrent.cases import Case, cases, misses
from plugins.mps.tests.emulated import emulated, fill
from torchyard_conformance._kernels._cases._recurrent import RecurrentCase
from torchyard_conformance._kernels._cases._recurrent_grids import GRIDS
from torchyard_conformance._kernels._ruler import compare
from torchyard_kernels.recurrent.contract import (
    FORWARD,
    RecurrentCall,
    RecurrentKind,
    RecurrentResult,
)
from torchyard_mps._launch import Launch
from torchyard_mps._runner import runs_by
from torchyard_mps.recurrent import forward
from torchyard_mps.recurrent._steps import LayerSteps

_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)


def _forward(call: RecurrentCall, **options: Any) -> RecurrentResult:
    with emulated(**options):
        result = forward(call)
    for tensor in (result.output, result.hidden, result.cell, result.reserve):
        assert tensor is None or tensor.is_contiguous()
    return result


_CASES: Final[dict[str, RecurrentCase]] = {
    f"{law}-{name}": case
    for law in ("matches", "padding", "not-finite", "any-memory")
    for name, case in GRIDS[FORWARD][law].items()
    # Metal has no float64.
    if isinstance(case, RecurrentCase) and case.dtype != "float64"
}


def _ratio(case: RecurrentCase) -> float:
    """Return the greatest error of a case of the conformance kit over its bound."""
    return max(compare(case, case.named_outputs(_forward(*case.given()))).values())


@pytest.mark.parametrize("name", list(_CASES)[::10])
def test_some_cases_of_the_kit(name: str) -> None:
    assert _ratio(_CASES[name]) <= 1


@pytest.mark.sweep
@pytest.mark.parametrize("name", _CASES)
def test_each_case_of_the_kit(name: str) -> None:
    assert _ratio(_CASES[name]) <= 1


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
@pytest.mark.parametrize("kind", RecurrentKind)
def test_each_cell_in_each_dtype(kind: RecurrentKind, dtype: torch.dtype) -> None:
    case = Case(kind, dtype, steps=2, batch=9, hidden=5, bidirectional=True, ragged=True)
    call = replace(case.call(), reserve=True)
    assert misses(_forward(call), call) == []


@settings(max_examples=5)
@given(case=cases(_DTYPES, 8))
def test_sizes(case: Case) -> None:
    call = case.call()
    assert misses(_forward(call), call) == []


@pytest.mark.sweep
@settings(max_examples=60)
@given(case=cases(_DTYPES, 40))
def test_many_sizes(case: Case) -> None:
    call = case.call()
    assert misses(_forward(call), call) == []


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


def test_equal_calls_give_equal_bits() -> None:
    call = Case(RecurrentKind.GRU, steps=2, batch=3, hidden=20).call()
    first, second = _forward(call), _forward(call, orders=2)
    assert torch.equal(first.output, second.output)
    assert torch.equal(first.hidden, second.hidden)


def test_nothing_beyond_a_sequences_end_reaches_a_result() -> None:
    case = Case(RecurrentKind.LSTM, steps=3, batch=4, bidirectional=True, ragged=True)
    call = replace(case.call(), reserve=True)
    assert call.lengths is not None
    there = torch.arange(case.steps)[:, None] < call.lengths
    poisoned = replace(call, input=call.input.masked_fill(~there[..., None], torch.nan))
    clean, dirty = _forward(call), _forward(poisoned)
    assert clean.reserve is not None
    assert dirty.reserve is not None
    assert torch.equal(clean.output, dirty.output)
    assert torch.equal(clean.hidden, dirty.hidden)
    assert torch.equal(clean.reserve, dirty.reserve)
    assert not clean.output[~there].any()
    assert not clean.reserve[:, ~there].any()


def test_a_batch_of_nothing() -> None:
    result = _forward(replace(Case(RecurrentKind.LSTM, batch=0).call(), reserve=True))
    assert (result.output.shape, result.hidden.shape) == ((5, 0, 6), (1, 0, 6))


@pytest.mark.parametrize(("proj", "count"), [(0, 1), (3, 2)])
def test_each_step_is_one_launch_and_a_projection_another(proj: int, count: int) -> None:
    call = Case(RecurrentKind.LSTM, steps=1, proj=proj).call()
    outputs = call.hidden.shape[2]
    output = torch.empty((1, 3, outputs))
    steps = LayerSteps(call, 0, torch.zeros(1, 3, 24), output, None, None)
    assert len(steps.launches(0)) == count

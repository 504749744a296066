"""Gradients of recurrent layers in Metal are as near to float64 as a naive computation's."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from packages.kernels.tests.recurrent.cases import Case
from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.recurrent.gradient_runs import gradients, worst
from torchyard_conformance._kernels._cases._recurrent import BackwardCase
from torchyard_conformance._kernels._cases._recurrent_grids import GRIDS
from torchyard_kernels.recurrent.contract import BACKWARD, RecurrentGradients, RecurrentKind
from torchyard_mps.recurrent import forward
from torchyard_mps.recurrent._gradient_steps import GradientSteps

_DTYPES: Final = ("float32", "float16", "bfloat16")
# A relu has a kink: of 16 bits a rounding may take the other side.
_SMOOTH: Final = tuple(kind for kind in RecurrentKind if kind is not RecurrentKind.RNN_RELU)
_CASES: Final[dict[str, BackwardCase]] = {
    f"{law}-{name}": case
    for law in ("matches", "padding", "any-memory")
    for name, case in GRIDS[BACKWARD][law].items()
    if isinstance(case, BackwardCase)
}


@pytest.mark.parametrize("name", list(_CASES)[::8])
def test_some_cases_of_the_kit(name: str) -> None:
    assert worst(_CASES[name]) <= 1


@pytest.mark.sweep
@pytest.mark.parametrize("name", _CASES)
def test_each_case_of_the_kit(name: str) -> None:
    assert worst(_CASES[name], orders=3, address_sanitizer=True) <= 1


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("kind", _SMOOTH)
def test_each_cell_in_each_dtype(kind: RecurrentKind, dtype: str) -> None:
    # More sequences than a threadgroup has, and both directions of sequences of their own lengths.
    case = BackwardCase(
        *("", "contiguous", kind, dtype, 2, 9, 3, 5),
        bidirectional=True,
        ragged=True,
    )
    assert worst(case) <= 1


@st.composite
def _cases(draw: st.DrawFn, most: int) -> BackwardCase:
    dtype = draw(st.sampled_from(_DTYPES))
    kind = draw(st.sampled_from(list(RecurrentKind) if dtype == "float32" else list(_SMOOTH)))
    hidden = draw(st.integers(1, most))
    projected = kind is RecurrentKind.LSTM and hidden > 1 and draw(st.booleans())
    return BackwardCase(
        "drawn",
        *(draw(st.sampled_from(["contiguous", "strided", "transposed"])), kind, dtype),
        *(draw(st.integers(1, size)) for size in (4, 11, most)),
        hidden,
        draw(st.integers(1, hidden - 1)) if projected else 0,
        draw(st.integers(1, 2)),
        *(draw(st.booleans()) for _ in range(3)),
        whole=draw(st.booleans()),
    )


@settings(max_examples=5)
@given(case=_cases(8))
def test_sizes(case: BackwardCase) -> None:
    assert worst(case) <= 1


@pytest.mark.sweep
@settings(max_examples=60)
@given(case=_cases(70))
def test_many_sizes(case: BackwardCase) -> None:
    assert worst(case) <= 1


@pytest.mark.parametrize("proj", [0, 4])
def test_threads_of_other_orders_give_equal_bits(proj: int) -> None:
    case = BackwardCase("", kind=RecurrentKind.LSTM, steps=2, hidden=35, proj=proj, ragged=True)
    first, second = (
        gradients(*case.given(), **options)
        for options in ({}, {"orders": 3, "address_sanitizer": True})
    )
    assert all(map(torch.equal, _tensors(first), _tensors(second)))


def _tensors(found: RecurrentGradients) -> list[Tensor]:
    states = [found.input, found.hidden, *([] if found.cell is None else [found.cell])]
    return states + [weight for one in found.weights for weight in one if weight is not None]


@pytest.mark.parametrize("proj", [0, 4])
def test_nothing_beyond_a_sequences_end_reaches_a_gradient(proj: int) -> None:
    case = BackwardCase(
        *("", "contiguous", RecurrentKind.LSTM),
        proj=proj,
        steps=3,
        bidirectional=True,
        ragged=True,
    )
    call, reserve, output, *rest = case.given()
    hidden = torch.arange(case.steps)[:, None] >= call.lengths
    assert hidden.any()
    poisoned = replace(call, input=call.input.masked_fill(hidden[..., None], torch.nan))
    clean = gradients(call, reserve, output, *rest)
    dirty = gradients(poisoned, reserve, output.masked_fill(hidden[..., None], torch.nan), *rest)
    assert all(map(torch.equal, _tensors(clean), _tensors(dirty)))
    assert not clean.input[hidden].any()


def test_gradients_that_are_not_given_are_zero() -> None:
    call, reserve, output, hidden, cell = BackwardCase("", kind=RecurrentKind.LSTM).given()
    zeros = torch.zeros_like(output), torch.zeros_like(hidden)
    asked, spared = (gradients(call, reserve, *given, cell) for given in (zeros, (None, None)))
    assert all(map(torch.equal, _tensors(asked), _tensors(spared)))
    assert spared.input.any()
    nothing = gradients(call, reserve, output, None, None)
    alone = gradients(call, reserve, output, zeros[1], torch.zeros_like(cell))
    assert all(map(torch.equal, _tensors(nothing), _tensors(alone)))


def test_a_reserve_that_the_forward_wrote_gives_the_same_gradients() -> None:
    case = BackwardCase("", kind=RecurrentKind.LSTM, proj=3, layers=2, ragged=True)
    call, reserve, *rest = case.given()
    with emulated():
        own = forward(replace(call, reserve=True)).reserve
    assert own is not None
    assert not torch.equal(own, reserve)
    torch.testing.assert_close(own, reserve, rtol=1e-4, atol=1e-5)
    for one, other in zip(
        _tensors(gradients(call, own, *rest)),
        _tensors(gradients(call, reserve, *rest)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_batch_of_nothing() -> None:
    call = replace(Case(RecurrentKind.LSTM, batch=0).call(), reserve=True)
    with emulated():
        result = forward(call)
    assert result.reserve is not None
    found = gradients(call, result.reserve, result.output, result.hidden, result.cell)
    assert (found.input.shape, found.hidden.shape) == (call.input.shape, call.hidden.shape)
    assert found.cell is not None
    assert found.cell.shape == result.hidden.shape
    assert not any(tensor.any() for tensor in _tensors(found))
    assert [one.shape for one in found.weights[0] if one is not None] == [
        one.shape for one in call.weights[0] if one is not None
    ]


@pytest.mark.parametrize(("proj", "count"), [(0, 4), (3, 7)])
def test_each_step_is_one_launch_and_a_projection_another(proj: int, count: int) -> None:
    call, reserve, *_ = BackwardCase("", kind=RecurrentKind.LSTM, steps=3, proj=proj).given()
    steps = GradientSteps(call, 0, reserve[0], None, None, None, None)
    # One more leaves the gradient of the state at the start.
    assert len(list(steps.launches())) == count

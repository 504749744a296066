"""Recurrent layers are as near to float64 as the equations in the call's dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from packages.kernels.tests.recurrent.cases import Case, misses
from packages.kernels.tests.recurrent.test_gradients import exact_gradients, slopes
from packages.triton.tests.ops.mutation import mutated
from torchyard import Platform, ReasonCode, read_platform_file
from torchyard_kernels.recurrent.contract import (
    RecurrentCall,
    RecurrentKind,
    RecurrentRequest,
    RecurrentResult,
)
from torchyard_triton import Vendor, implementations
from torchyard_triton.linear import LinearTiles
from torchyard_triton.recurrent import StepTiles, backward, forward
from torchyard_triton.recurrent._backward import BackwardSteps

_ROOM = "torchyard_triton.device.recurrent"
_TILES = StepTiles(16, 16, 16)
_PRODUCTS = LinearTiles(16, 64, 32)
_JUMPING: Final = RecurrentKind.RNN_RELU


def _forward(call: RecurrentCall) -> RecurrentResult:
    widen = call.input.dtype == torch.bfloat16
    return forward(call, tiles=_TILES, products=_PRODUCTS, widen=widen)


def _gradient_excess(call: RecurrentCall, result: RecurrentResult) -> float:
    """Return the greatest error of a gradient over some roundings of its greatest element."""
    exact = exact_gradients(call)
    _, grads = slopes(result)
    output, hidden, cell = (*grads, None)[:3]
    assert result.reserve is not None
    widen = call.input.dtype == torch.bfloat16
    found = backward(call, result.reserve, output, hidden, cell, tiles=_TILES, widen=widen)
    flat: list[Tensor] = [found.input, found.hidden]
    flat += [] if found.cell is None else [found.cell]
    flat += [weight for one in found.weights for weight in one if weight is not None]
    eps = torch.finfo(call.input.dtype).eps
    worst = 0.0
    for got, right in zip(flat, exact, strict=True):
        assert got.shape == right.shape
        assert got.dtype == call.input.dtype
        size = float(right.abs().max()) if right.numel() else 0.0
        if size:
            error = (got.double() - right).abs().max() / (8 * eps * size)
            worst = max(worst, float(error.nan_to_num(nan=torch.inf)))
    return worst


# 20 units are two tiles; sequences of their own lengths, in both directions.
_CASES: dict[str, Case] = {
    **{
        str(kind): Case(kind, steps=3, hidden=20, bidirectional=True, ragged=True)
        for kind in RecurrentKind
    },
    "gru-half": Case(RecurrentKind.GRU, torch.float16, steps=3, hidden=20, ragged=True),
    "lstm-half": Case(RecurrentKind.LSTM, torch.float16, steps=3),
    "lstm-bfloat16": Case(RecurrentKind.LSTM, torch.bfloat16, steps=2),
    "gru-without-bias": Case(RecurrentKind.GRU, steps=2, bias=False),
    "layers": Case(RecurrentKind.RNN_TANH, steps=2, layers=2, bidirectional=True),
    "sequences": Case(RecurrentKind.GRU, steps=2, batch=18, batch_first=True),
    "nothing": Case(RecurrentKind.LSTM, batch=0),
}


@pytest.mark.parametrize("name", _CASES)
def test_forward_and_backward(name: str) -> None:
    case = _CASES[name]
    call = replace(case.call(), reserve=True)
    result = _forward(call)
    assert result.output.is_contiguous()
    assert result.hidden.is_contiguous()
    if case.batch:
        assert misses(result, call) == []
        assert _gradient_excess(call, result) <= 1


@st.composite
def _drawn(draw: st.DrawFn, most: int) -> Case:
    flag = st.booleans()
    return Case(
        draw(st.sampled_from(list(RecurrentKind))),
        draw(st.sampled_from([torch.float32, torch.float16])),
        *(draw(st.integers(1, size)) for size in (3, 5, 5, most)),
        0,
        draw(st.integers(1, 2)),
        *(draw(flag) for _ in range(5)),
        seed=draw(st.integers(0, 2**16)),
    )


def _is_near(case: Case) -> None:
    call = replace(case.call(), reserve=True)
    result = _forward(call)
    assert misses(result, call) == []
    # Where a sum is within a rounding of 0, the gradient of relu jumps.
    if case.kind is not _JUMPING and case.dtype == torch.float32:
        assert _gradient_excess(call, result) <= 1


@settings(max_examples=3)
@given(case=_drawn(6))
def test_sizes(case: Case) -> None:
    _is_near(case)


@pytest.mark.sweep
@settings(max_examples=60)
@given(case=_drawn(40))
def test_many_sizes(case: Case) -> None:
    _is_near(case)


def test_nothing_beyond_a_sequences_end_reaches_a_result() -> None:
    case = Case(RecurrentKind.GRU, steps=3, batch=4, bidirectional=True, ragged=True)
    call = replace(case.call(), reserve=True)
    assert call.lengths is not None
    there = torch.arange(case.steps)[:, None] < call.lengths
    poisoned = replace(call, input=call.input.masked_fill(~there[..., None], float("nan")))
    assert poisoned.input.isnan().any()
    clean, dirty = _forward(call), _forward(poisoned)
    assert torch.equal(clean.output, dirty.output)
    assert torch.equal(clean.hidden, dirty.hidden)
    assert clean.reserve is not None
    assert dirty.reserve is not None
    assert torch.equal(clean.reserve, dirty.reserve)
    assert not clean.output[~there].any()
    ones = torch.ones_like(clean.output)
    gradients = [
        backward(one, clean.reserve, ones, None, None, tiles=_TILES) for one in (call, poisoned)
    ]
    assert torch.equal(gradients[0].input, gradients[1].input)
    assert torch.equal(gradients[0].weights[0].w_ih, gradients[1].weights[0].w_ih)
    assert not gradients[0].input[~there].any()


def test_gradients_that_are_not_given_are_zero() -> None:
    call = replace(Case(RecurrentKind.LSTM, steps=2).call(), reserve=True)
    result = _forward(call)
    assert result.reserve is not None
    assert result.cell is not None
    zeros = torch.zeros_like(result.output), torch.zeros_like(result.hidden)
    ones = torch.ones_like(result.cell)
    given = backward(call, result.reserve, *zeros, ones, tiles=_TILES)
    spared = backward(call, result.reserve, None, None, ones, tiles=_TILES)
    assert torch.equal(given.input, spared.input)
    assert given.input.abs().max() > 0


# Module, the text that is replaced, by what, and the case that shows it.
_LSTM = Case(RecurrentKind.LSTM, steps=2, batch=2, inputs=2, hidden=3)
_GRU = replace(_LSTM, kind=RecurrentKind.GRU)
_RNN = replace(_LSTM, kind=RecurrentKind.RNN_TANH)
_RAGGED = replace(_LSTM, ragged=True, batch=4, steps=2, bidirectional=True)
_WIDE = replace(_RNN, hidden=17)
MUTANTS: list[tuple[str, str, str, Case]] = [
    ("step", "(step < tl.load(lengths", "(step <= tl.load(lengths", _RAGGED),
    ("step", "range(0, size, DEPTH)", "range(0, size - 16, DEPTH)", _WIDE),
    ("step", "(gate * size + columns).to", "columns.to", _LSTM),
    ("step", "* weight[1] + depth", "* weight[2] + depth", _RNN),
    ("step", "r * n_h", "n_h", _GRU),
    ("step", "bias + 2 * size", "bias + size", _GRU),
    ("step", "tl.store(cell + own, c", "tl.store(cell + own, c * 0.0", _LSTM),
    ("step", "+ rows.to(tl.int64) * output_row", "+ rows.to(tl.int64) * 0", _RNN),
    ("step_gradient", "(step < length)", "(step <= length)", _RAGGED),
    ("step_gradient", "begins | (earlier >= length)", "begins | (earlier > length)", _RAGGED),
    ("step_gradient", "through * f, given", "through, given", _LSTM),
    ("step_gradient", "total * z, total", "total, total", _GRU),
    ("step_gradient", "to_n * r, 0.0", "to_n, 0.0", _GRU),
    ("step_gradient", "range(0, gates * size, DEPTH)", "range(0, size - 16, DEPTH)", _WIDE),
    ("step_gradient", "rows.to(tl.int64) * output_row", "rows.to(tl.int64) * 0", _RNN),
    ("step_gradient", "total += tl.load(direct", "total -= tl.load(direct", _GRU),
]


def _is_wrong(case: Case) -> bool:
    call = replace(case.call(), reserve=True)
    result = _forward(call)
    return bool(misses(result, call)) or _gradient_excess(call, result) > 1


@pytest.mark.parametrize(
    ("module", "right", "wrong", "case"),
    MUTANTS,
    ids=[f"{module}-{wrong}" for module, _, wrong, _ in MUTANTS],
)
def test_mutant_is_caught(
    module: str, right: str, wrong: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: Any = mutated([f"{_ROOM}.{module}"], right, wrong)
    name = f"recurrent_{module}"
    monkeypatch.setattr(f"{_ROOM}.{module}.{name}", getattr(broken, name))
    assert _is_wrong(case)


@pytest.mark.parametrize(
    "case", [_LSTM, _GRU, _RAGGED, _WIDE], ids=["lstm", "gru", "ragged", "wide"]
)
def test_cases_of_mutants_are_right_without_them(case: Case) -> None:
    assert not _is_wrong(case)


def test_each_step_is_one_launch() -> None:
    call = replace(Case(RecurrentKind.GRU, steps=5).call(), reserve=True)
    reserve = torch.empty((5, 3, 30))
    run = BackwardSteps(call, 0, reserve, None, None, None, tiles=None, widen=False)
    # One more leaves the gradient of the state at the start.
    assert len(run.launches()) == 6


def _current() -> str:
    raise AssertionError("a verdict looked at the machine")


def _judged(contract: str, platform: Platform, **changes: Any) -> Any:
    request = RecurrentRequest("cuda", "bfloat16", RecurrentKind.GRU, 128, 64, 256, 256)
    (found,) = implementations(contract, Vendor("cuda", "cuda", "cuda", _current))
    assert found.name == "cuda.triton"
    return found.supports(replace(request, **changes), platform)


@pytest.mark.parametrize("contract", ["recurrent/1", "recurrent_backward/1"])
def test_verdicts(contract: str) -> None:
    machine = read_platform_file("h100").platform
    assert _judged(contract, machine).supported
    assert _judged(contract, machine, grad=True, reserve=True, ragged=True).supported
    assert _judged(contract, machine, dtype="float64").code == ReasonCode.DTYPE
    lstm = {"kind": RecurrentKind.LSTM, "proj_size": 64}
    assert _judged(contract, machine, **lstm).code == ReasonCode.SHAPE
    assert _judged(contract, machine, grad=True).code == ReasonCode.GRAD
    assert _judged(contract, machine, device="cpu").code == ReasonCode.DEVICE


def test_loaded_implementations_compute() -> None:
    vendor = Vendor("cuda", "cuda", "cuda", _current)
    loaded: list[Callable[..., Any]] = [
        implementations(contract, vendor)[0].load()
        for contract in ("recurrent/1", "recurrent_backward/1")
    ]
    call = replace(_RNN.call(), reserve=True)
    result = loaded[0](call)
    assert misses(result, call) == []
    found = loaded[1](call, result.reserve, torch.ones_like(result.output), None, None)
    assert found.input.shape == call.input.shape

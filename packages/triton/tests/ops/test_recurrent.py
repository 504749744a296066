"""Recurrent layers are as near to float64 as the equations in the call's dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch

from packages.kernels.tests.recurrent.cases import Case, misses
from packages.kernels.tests.recurrent.suite import RecurrentSuite, gradient_excess
from packages.triton.tests.mutants.mutation import mutated
from torchyard import Platform, ReasonCode, read_platform_file
from torchyard_kernels.recurrent.contract import (
    RecurrentCall,
    RecurrentGradients,
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


def _forward(call: RecurrentCall) -> RecurrentResult:
    return forward(call, tiles=_TILES, products=_PRODUCTS)


def _backward(call: RecurrentCall, *given: Any) -> RecurrentGradients:
    return backward(call, *given, tiles=_TILES)


class TestRecurrent(RecurrentSuite):
    """The suite of every implementation."""

    projects: ClassVar[bool] = False

    def forward(self, call: RecurrentCall) -> RecurrentResult:
        """Compute a call's outputs in small tiles."""
        return _forward(call)

    def backward(self, call: RecurrentCall, *given: Any) -> RecurrentGradients:
        """Compute gradients in small tiles."""
        return _backward(call, *given)


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
    return bool(misses(result, call)) or gradient_excess(call, result, _backward) > 1


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
    run = BackwardSteps(call, 0, reserve, None, None, None, tiles=None)
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

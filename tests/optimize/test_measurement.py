"""Seconds, memory and errors are those of the call."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from torchyard import optimize
from torchyard.optimization._example import ExampleCall
from torchyard.optimization._measurement import Bench
from torchyard.optimization._results import Judge, results_of
from torchyard_kernels import accelerate

_MEBI = 1 << 20
_OTHERS = ("attention", "reroute", "compile", "graphs", "reuse")


class _Timed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        time.sleep(0.02)
        return x + 1


@pytest.mark.parametrize(("goal", "between"), [("latency", 1), ("throughput", 8)])
def test_seconds_are_those_of_one_call(goal: str, between: int) -> None:
    model = _Timed().eval()
    bench = Bench(model, ExampleCall((torch.zeros(1),), {}), goal)
    begin = time.perf_counter()
    seconds = bench.seconds()
    assert 0.02 <= seconds <= time.perf_counter() - begin
    assert model.calls % between == 0
    assert model.calls >= 5 * between


def test_what_earlier_calls_left_is_forgotten_before_each() -> None:
    model, forgotten = _Timed().eval(), []
    bench = Bench(model, ExampleCall((torch.zeros(1),), {}), "latency")
    bench.seconds(lambda: forgotten.append(model.calls))
    assert len(forgotten) >= 5
    assert forgotten == list(range(model.calls))


@pytest.mark.parametrize(("call", "calls"), [(0.1, 10), (0.3, 5), (3.0, 4), (6.0, 2), (60.0, 1)])
def test_slow_calls_are_measured_less_often(
    call: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            now[0] += call
            return x

    monkeypatch.setattr(
        "torchyard.optimization._measurement.time.perf_counter", lambda: round(now[0], 3)
    )
    seconds = Bench(Slow(), ExampleCall((torch.zeros(1),), {}), "latency").seconds()
    assert seconds == pytest.approx(call)
    assert now[0] == pytest.approx(calls * call)


class _Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * _MEBI // 4))
        self.tied = self.weight

    def forward(self, x: Tensor) -> Tensor:
        first = torch.zeros(4 * _MEBI // 4)
        second = first + 1
        del first
        return second.sum() + x


def test_memory_is_the_weights_once_and_the_most_that_a_call_holds() -> None:
    bench = Bench(_Large().eval(), ExampleCall((torch.zeros(1),), {}), "memory")
    assert 10 * _MEBI <= bench.memory() < 10.1 * _MEBI


@pytest.mark.parametrize(("weights", "share"), [(None, 1.0), ("int8", 0.5), ("int4", 0.25)])
def test_memory_of_packed_weights_is_that_of_their_numbers(
    weights: Literal["int8", "int4"] | None, share: float
) -> None:
    def memory() -> int:
        return Bench(model, ExampleCall((x,), {}), "memory").memory()

    x = torch.zeros(1, 512, dtype=torch.bfloat16)
    model = nn.Sequential(*(nn.Linear(512, 512).to(torch.bfloat16) for _ in range(2))).eval()
    before = memory()
    accelerate(model, weights=weights, measure=False)
    # Scales, and what a call of the kernels makes, come on top.
    assert 0.9 * share * before < memory() < (share + 0.15) * before


def test_copies_of_weights_that_stay_are_counted() -> None:
    model = nn.Sequential(nn.Embedding(512, 64), nn.Linear(64, 512, bias=False)).eval()
    model[1].weight = model[0].weight
    done = optimize(model, torch.zeros(1, 8, dtype=torch.long), skip=_OTHERS)
    assert done.report is not None
    (packed,) = [trial for trial in done.report.trials if trial.variant == "packed"]
    assert packed.after is not None
    assert packed.before is not None
    assert packed.after.memory >= packed.before.memory + 0.9 * 512 * 64 * 4


class _Pair(NamedTuple):
    first: Tensor
    second: Any


@dataclass
class _Output:
    logits: Tensor
    more: Any


def test_results_are_found_in_whatever_holds_them() -> None:
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    found = results_of(_Output(one, {"pair": _Pair(two, [three, 4, "text", object()])}))
    assert {path: getattr(value, "shape", value) for path, value in found.items()} == {
        "result.logits": one.shape,
        "result.more.pair.first": two.shape,
        "result.more.pair.second.0": three.shape,
        "result.more.pair.second.1": 4,
        "result.more.pair.second.2": "text",
    }
    # Copies, since a replay overwrites what it returned.
    assert found["result.logits"] is not one


@given(
    values=st.lists(st.floats(-4, 4), min_size=1, max_size=8),
    error=st.floats(1e-6, 0.5),
    tolerance=st.floats(1e-6, 0.5),
)
def test_a_tolerance_is_a_share_of_the_norm(
    values: list[float], error: float, tolerance: float
) -> None:
    stock = torch.tensor([1.0, *values], dtype=torch.float64)
    moved = torch.zeros_like(stock)
    moved[0] = error * stock.norm()
    difference, wrong = Judge(results_of(stock), None, tolerance).check(results_of(stock + moved))
    assert math.isclose(difference.error, error, rel_tol=1e-6)
    if not math.isclose(error, tolerance, rel_tol=1e-5):
        assert bool(wrong) == (error > tolerance)


@given(st.integers(0, 1 << 30))
def test_rounding_of_another_order_passes_and_fewer_bits_do_not(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(8, 64, generator=generator) for _ in range(2))
    exact = results_of(x.double() @ weight.double().mT)
    judge = Judge(results_of(x @ weight.mT), exact, None)
    halves = x[:, :32] @ weight[:, :32].mT + x[:, 32:] @ weight[:, 32:].mT
    assert judge.check(results_of(halves))[1] == ""
    rounded = (x.bfloat16() @ weight.bfloat16().mT).float()
    assert "differs from float64" in judge.check(results_of(rounded))[1]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (torch.zeros(3), "expected torch.float32 of shape [2], got torch.float32 of shape [3]"),
        (torch.zeros(2, dtype=torch.float64), "expected torch.float32 of shape [2], got"),
        ([torch.zeros(2)], "result: it is not there"),
        (torch.tensor([math.nan, 1.0]), "result differs by inf"),
        (torch.tensor([math.inf, 1.0]), ""),
    ],
)
def test_what_differs_otherwise_than_by_numbers_is_wrong(found: Any, words: str) -> None:
    stock = results_of(torch.tensor([math.inf, 1.0]))
    wrong = Judge(stock, None, 1.0).check(results_of(found))[1]
    assert words in wrong
    assert bool(words) == bool(wrong)

"""A trace of torch's profiler names our ops, and inside of them the decisions of the calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import torchyard
from torchyard import DecisionRecord
from torchyard_attention import flex_attention
from torchyard_kernels import linear, topk


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        y = flex_attention(x, x, x)
        y = linear(y.bfloat16(), self.weight)
        return topk(y.float().flatten(1), 4).values


def _traced(run: Callable[[], Any], path: Path) -> tuple[DecisionRecord, list[dict[str, Any]]]:
    with profile(activities=[ProfilerActivity.CPU]) as profiler, torchyard.record_decisions() as r:
        run()
    profiler.export_chrome_trace(str(path))
    assert r.annotate(path) > 0
    events = json.loads(path.read_bytes())["traceEvents"]
    return r, [event for event in events if event.get("ph") == "X"]


def _named(events: list[dict[str, Any]], start: str) -> list[dict[str, Any]]:
    return [event for event in events if str(event["name"]).startswith(start)]


def _is_inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    same = inner["tid"] == outer["tid"]
    ends = inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    return bool(same and outer["ts"] <= inner["ts"] and ends)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_models_trace_has_its_decisions(tmp_path: Path, compiled: bool) -> None:
    model, x = _Model(), torch.randn(1, 2, 8, 16)
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    with torch.no_grad():
        # Repeated calls, which have a path of their own outside of a profile.
        wanted = [run(x) for _ in range(3)][-1]
        record, events = _traced(lambda: [run(x), run(x)], tmp_path / "trace.json")
        assert torch.equal(run(x), wanted)
    assert [decision.contract for decision in record.decisions] == [
        "attention/1",
        "linear/1",
        "topk/1",
    ]
    for decision, op in zip(
        record.decisions,
        ("torchyard_attention::forward", "torchyard_kernels::linear", "torchyard_kernels::topk"),
        strict=True,
    ):
        assert record.calls(decision) == 2
        ranges = _named(events, record.label(decision))
        assert len(ranges) == 2
        assert ranges[0]["name"].startswith(f"torchyard::{decision.contract[:-2]} -> cpu.native")
        for one in ranges:
            assert any(_is_inside(one, outer) for outer in _named(events, op))
            assert one["args"]["torchyard implementation"] == decision.name
            assert "float" in one["args"]["torchyard request"]


def test_a_backwards_decision_is_in_the_trace(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 8, 16, requires_grad=True)
    record, events = _traced(
        lambda: flex_attention(x, x, x).sum().backward(), tmp_path / "trace.json"
    )
    assert [d.contract for d in record.decisions] == ["attention/1", "attention_backward/1"]
    (one,) = _named(events, "torchyard::attention_backward -> ")
    outer = _named(events, "torchyard_attention::backward")
    assert any(_is_inside(one, event) for event in outer)


def test_without_a_profile_calls_are_recorded_alone() -> None:
    x = torch.randn(1, 2, 8, 16)
    with torch.no_grad(), torchyard.record_decisions() as record:
        flex_attention(x, x, x)
    (decision,) = record.decisions
    assert record.calls(decision) == 1


def test_after_a_block_nothing_is_recorded() -> None:
    x = torch.randn(64)
    with torchyard.record_decisions() as record:
        topk(x, 3)
    wanted = record.render()
    assert "1 call\n" in wanted
    for _ in range(3):
        topk(x, 3)
    assert record.render() == wanted


class _Packaged(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return linear(flex_attention(x, x, x), weight).relu()


# It compiles a package by a C++ compiler.
@pytest.mark.sweep
def test_a_compiled_packages_trace_has_its_decisions(tmp_path: Path) -> None:
    inputs = torch.randn(1, 2, 16, 16), torch.randn(16, 16)
    program = torch.export.export(_Packaged(), inputs)
    package = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "model.pt2")
    )
    run = torch._inductor.aoti_load_package(package)
    with torch.no_grad():
        assert torch.equal(run(*inputs), _Packaged()(*inputs))
        record, events = _traced(lambda: run(*inputs), tmp_path / "trace.json")
    assert [decision.contract for decision in record.decisions] == ["attention/1", "linear/1"]
    for decision, op in zip(
        record.decisions, ("torchyard_attention::forward", "torchyard_kernels::linear"), strict=True
    ):
        (one,) = _named(events, record.label(decision))
        assert any(_is_inside(one, outer) for outer in _named(events, op))

"""A call in a TorchDispatchMode leaves a compiled function compiled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

from packages.compile.tests.counted import Runs
from torchyard_compile import FallbackError, RegionWarning, compile_regions
from torchyard_compile._dispatch_modes import eager_in_modes
from torchyard_compile._optimizations import torchyard_optimizations


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(x).relu()


def test_a_function_is_compiled_before_and_after_a_mode_and_not_in_it() -> None:
    runs = Runs()
    square = eager_in_modes(torch.compile(lambda x: (x @ x).sin(), backend=runs))
    x = torch.ones(3, 3)
    expected = square(x)
    with FlopCounterMode(display=False) as counter:
        assert torch.equal(square(x), expected)
    assert counter.get_total_flops() == 2 * 27
    assert runs.count == 1
    assert torch.equal(square(x), expected)
    assert runs.count == 2


@pytest.mark.parametrize("first", ["mode", "call"])
def test_regions_are_compiled_after_a_mode(first: str) -> None:
    runs = Runs()
    model = compile_regions(
        nn.Sequential(*(_Block() for _ in range(3))), backend=runs, on_fallback="warn"
    )
    x = torch.ones(2, 8)
    if first == "call":
        model(x)
    before = runs.count
    with FlopCounterMode(display=False), pytest.warns(RegionWarning, match="TorchDispatchMode"):
        model(x)
    assert runs.count == before
    model(x)
    assert runs.count == before + 3


def test_regions_refuse_a_mode_and_are_compiled_after_it() -> None:
    runs = Runs()
    model = compile_regions(nn.Sequential(*(_Block() for _ in range(3))), backend=runs)
    x = torch.ones(2, 8)
    model(x)
    with (
        FlopCounterMode(display=False),
        pytest.raises(FallbackError, match=r'0 would run uncompiled: .*on_fallback="warn"'),
    ):
        model(x)
    model(x)
    assert runs.count == 6


@pytest.mark.sweep
def test_a_model_that_optimize_compiled_is_compiled_after_its_graphs_are_undone() -> None:
    from torchyard_kernels import capture

    model = nn.Sequential(*(_Block() for _ in range(2))).eval()
    (whole,) = (
        variant
        for one in torchyard_optimizations()
        if one.name == "compile"
        for variant in one.variants(model)
        if variant.name == "whole"
    )
    x = torch.ones(2, 8)
    with torch.no_grad():
        applied = whole.apply(True)
        expected = model(x)
        captured = capture(model.forward, x)
        torch.testing.assert_close(captured(x), expected)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            assert torch.equal(model(x), expected)
    assert any("Torch-Compiled Region" in event.key for event in profile.key_averages())
    applied.undo()


def test_regions_run_compiled_inside_of_selective_checkpoints() -> None:
    runs = Runs()
    model = compile_regions(nn.Sequential(*(_Block() for _ in range(2))), backend=runs)
    x = torch.ones(2, 8, requires_grad=True)
    model(x).sum().backward()
    expected, x.grad = x.grad, None
    before = runs.count
    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    checkpoint(model, x, use_reentrant=False, context_fn=contexts).sum().backward()
    assert runs.count > before
    assert expected is not None
    assert x.grad is not None
    assert torch.equal(x.grad, expected)

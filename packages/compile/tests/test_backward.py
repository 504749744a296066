"""Backward passes are compiled where gradients stay the same and a step takes less time."""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchyard_compile import (
    CompiledBackward,
    CompiledBackwardError,
    RegionWarning,
    compiled_backward,
)
from torchyard_compile._backward import _agreed


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.5))
        self.last = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(checkpoint(self.first, x, use_reentrant=False).tanh())
        return out


def _step(model: nn.Module) -> Callable[[], None]:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(2))
    return lambda: model(x).square().sum().backward()


def _gradients(model: nn.Module) -> list[Tensor]:
    found = []
    for parameter in model.parameters():
        assert parameter.grad is not None
        found.append(parameter.grad.clone())
    return found


@pytest.fixture(name="times")
def _times(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Let a clock tick such that a step takes some seconds, and a compiled one others."""

    def say(eager: float, compiled: float) -> None:
        now, calls = [0.0], [0]

        def clock() -> float:
            calls[0] += 1
            # Two readings to a run: a warm-up and two rounds, then the compiled ones.
            now[0] += eager if calls[0] <= 6 else compiled
            return now[0]

        monkeypatch.setattr("torchyard_compile._backward.time.perf_counter", clock)

    return say


@pytest.mark.sweep
def test_gradients_with_hooks_a_checkpoint_and_dropout_are_the_same(
    times: Callable[[float, float], None],
) -> None:
    model, seen = _Model(), []
    next(model.first.parameters()).register_hook(lambda grad: 3 * grad)
    model.last.bias.register_post_accumulate_grad_hook(lambda parameter: seen.append(1))
    step = _step(model)
    torch.manual_seed(5)
    step()
    step()
    expected = _gradients(model)
    model.zero_grad()
    times(2.0, 1.0)

    compiled = compiled_backward(model, step, backend="aot_eager", rounds=2)
    torch.manual_seed(5)
    with compiled:
        before = len(seen)
        step()
        step()

    assert compiled.report.active, compiled.report.reason
    assert compiled.report.reason == "a step takes 0.50 of the time"
    assert (compiled.report.eager_seconds, compiled.report.compiled_seconds) == (2.0, 1.0)
    assert len(seen) == before + 2
    for ours, theirs in zip(_gradients(model), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


class _Attention(nn.Module):
    """Softmax takes no notice of a bias of keys, whose gradient is rounding alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).mT
        out: Tensor = torch.softmax(scores, -1) @ self.value(x)
        return out


def _rounded(graph: Any, inputs: Any) -> Callable[..., Any]:
    """Compile to what rounds each result of a backward pass otherwise, by an amount as good."""
    eps = torch.finfo(torch.float32).eps
    return lambda *given: [
        item + 2 * eps * torch.randn_like(item)
        if isinstance(item, Tensor) and item.is_floating_point()
        else item
        for item in graph(*given)
    ]


@pytest.mark.sweep
def test_a_gradient_of_rounding_alone_is_no_difference(
    times: Callable[[float, float], None],
) -> None:
    torch.compiler.reset()
    model = _Attention()
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(4))
    kept = [parameter.detach().clone() for parameter in model.parameters()]

    def step() -> None:
        model(x).square().sum().backward()

    step()
    bias, weight = model.key.bias.grad, model.key.weight.grad
    assert bias is not None
    assert weight is not None
    assert bias.abs().max() < 1e-4 * weight.abs().max()
    times(2.0, 1.0)
    report = compiled_backward(model, step, backend=_rounded, rounds=2).report
    assert report.active, report.reason
    assert all(torch.equal(p, was) for p, was in zip(model.parameters(), kept, strict=True))
    torch.compiler.reset()


@pytest.mark.sweep
def test_a_step_that_rounding_decides_cannot_be_compared() -> None:
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, eps=0.0))
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(4))
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)

    # The mean square of a normalised vector is one, whatever the weights are.
    report = compiled_backward(
        model, lambda: model(x).square().mean().backward(), backend="aot_eager", rounds=1
    ).report

    assert not report.active
    assert re.match(
        r"one rounding of the parameters changes a gradient by .* of the largest", report.reason
    )
    torch.compiler.reset()


@pytest.mark.sweep
def test_a_trial_leaves_gradients_buffers_and_random_numbers_alone(
    times: Callable[[float, float], None],
) -> None:
    model = _Model()
    step = _step(model)
    step()
    grads = [parameter.grad for parameter in model.parameters()]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    state = torch.get_rng_state()
    times(2.0, 1.0)

    assert compiled_backward(model, step, backend="aot_eager", rounds=2).report.active

    assert all(p.grad is grad for p, grad in zip(model.parameters(), grads, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, buffers[name])


@pytest.mark.sweep
def test_a_step_that_is_not_faster_is_refused_with_both_times(
    times: Callable[[float, float], None],
) -> None:
    times(1.0, 3.0)
    model = _Model()
    compiled = compiled_backward(model, _step(model), backend="aot_eager", rounds=2)
    with pytest.raises(CompiledBackwardError, match=r"a step takes 3\.00 times as long as without"):
        compiled.__enter__()
    assert not compiled.report.active


def _wrong(graph: Any, inputs: Any) -> Callable[..., Any]:
    return lambda *given: [
        2 * item if isinstance(item, Tensor) and item.is_floating_point() else item
        for item in graph(*given)
    ]


def _broken(graph: Any, inputs: Any) -> Callable[..., Any]:
    raise RuntimeError("no such instruction")


@pytest.mark.parametrize(
    ("backend", "words"),
    [(_broken, "a small model's backward ends in .*"), (_wrong, "a small model's .*")],
)
def test_a_backend_that_fails_is_refused(backend: Any, words: str) -> None:
    torch.compiler.reset()
    with pytest.raises(CompiledBackwardError, match=f"refused: {words}"):
        compiled_backward(backend=backend).__enter__()
    torch.compiler.reset()


def test_where_it_is_refused_with_a_warning_the_backward_runs_as_without() -> None:
    model = _Model().eval()
    step = _step(model)
    step()
    expected = _gradients(model)
    model.zero_grad()
    torch.compiler.reset()
    with (
        pytest.warns(RegionWarning, match="not compiled: a small model's backward"),
        compiled_backward(backend=_broken, on_refusal="warn") as compiled,
    ):
        step()
    assert not compiled.report.active
    for ours, theirs in zip(_gradients(model), expected, strict=True):
        assert torch.equal(ours, theirs)
    torch.compiler.reset()


@pytest.mark.sweep
def test_a_step_without_gradients_or_that_raises_is_refused() -> None:
    model = _Model()
    without = compiled_backward(model, lambda: None, backend="aot_eager", rounds=1)
    assert "leaves the model's parameters no gradient" in without.report.reason

    step, runs = _step(model), []

    def failing() -> None:
        runs.append(1)
        step()
        if len(runs) > 3:  # Two uncompiled ones, and one with other roundings.
            raise RuntimeError("lost")

    refused = compiled_backward(model, failing, backend="aot_eager", rounds=1)
    assert not refused.report.active
    assert refused.report.reason == "the step ends in RuntimeError: lost"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"model": nn.Linear(1, 1)}, "step: expected a model and a step of it, or neither"),
        ({"model": 1, "step": print}, "model: expected a torch.nn.Module"),
        ({"model": nn.Linear(1, 1), "step": 1}, "step: expected"),
        ({"backend": "none of them"}, "backend: expected"),
        ({"rounds": 0}, "rounds: expected"),
        ({"on_refusal": "ignore"}, "on_refusal: expected"),
    ],
)
def test_bad_arguments(words: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        compiled_backward(**words)


def _rank(rank: int, folder: str, reducer: str) -> None:
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2
    )
    assert _agreed("mine" if rank else "") == "mine"
    assert _agreed("") == ""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 2))
    x = torch.full((4, 6), float(rank + 1))

    stock = nn.parallel.DistributedDataParallel(copy.deepcopy(layers))
    stock(x).square().sum().backward()
    expected = _gradients(stock)
    torch._dynamo.config.optimize_ddp = reducer
    model = nn.parallel.DistributedDataParallel(layers)

    def step() -> None:
        model(x).square().sum().backward()

    compiled = compiled_backward(model, step, backend="aot_eager", rounds=1, on_refusal="warn")
    with compiled:
        step()
    found = _gradients(model)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    Path(folder, f"rank-{rank}").write_text(compiled.report.reason)
    torch.distributed.destroy_process_group()


@pytest.mark.sweep
@pytest.mark.parametrize("reducer", ["ddp_optimizer", "python_reducer"])
def test_two_ranks_of_ddp_decide_together_and_keep_their_gradients(
    reducer: str, tmp_path: Path
) -> None:
    torch.multiprocessing.spawn(_rank, (str(tmp_path), reducer), nprocs=2)
    reasons = [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]
    # Compiled Autograd does not trace the reducer in C++; that in Python runs, whatever it takes.
    unfit = ["not compatible with C++ DDP Reducer" in reason for reason in reasons]
    assert unfit == [reducer == "ddp_optimizer"] * 2, reasons
    timed = ["of the time" in reason or "times as long" in reason for reason in reasons]
    assert timed == [reducer == "python_reducer"] * 2, reasons


@pytest.mark.sweep
def test_a_context_may_be_entered_again() -> None:
    compiled = compiled_backward(backend="aot_eager")
    assert isinstance(compiled, CompiledBackward)
    model = nn.Linear(3, 1)
    for _ in range(2):
        with compiled:
            model(torch.ones(2, 3)).sum().backward()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((1, 3), 4.0))

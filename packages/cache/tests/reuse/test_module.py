"""A module returns outputs of inputs that it has seen, and only where that is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from packages.cache.tests.reuse.models import encoder, prompt
from torchyard_cache import reuse_module


class _Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: torch.Tensor, scale: Any = 1.0, more: Any = None) -> Any:
        self.calls += 1
        return self.linear(x) * (scale if isinstance(scale, float) else 1.0)


def _module() -> _Counted:
    torch.manual_seed(0)
    return _Counted().eval()


@torch.no_grad()
def test_an_encoder_is_run_once_for_an_input() -> None:
    model = encoder()
    expected = model(prompt(9))
    with reuse_module(model) as cache:
        for _ in range(3):
            found = model(prompt(9))
            assert type(found) is type(expected)
            assert torch.equal(found.last_hidden_state, expected.last_hidden_state)
        model(prompt(9, 1))
        stats = cache.stats()
    assert (stats.calls, stats.hits) == (4, 2)
    assert "forward" not in vars(model)


@torch.no_grad()
def test_what_differs_in_a_byte_is_another_input() -> None:
    module, x = _module(), torch.randn(2, 4)
    with reuse_module(module):
        for y in (x, x + 1e-7, x.double().float() * -0.0, x.reshape(1, 2, 4), x.clone()):
            module(y)
        assert module.calls == 4
        module(x, 2.0)
        module(x, scale=2.0)
        module(x, more={"a": [1, None], "b": "text"})
        module(x, more={"b": "text", "a": [1, None]})
        module(x, more=True)
        module(x, more=1)
        assert module.calls == 9


@torch.no_grad()
def test_a_caller_changes_no_stored_output() -> None:
    module, x = _module(), torch.randn(2, 4)
    with reuse_module(module):
        first = module(x)
        kept = first.clone()
        first.zero_()
        second = module(x)
        assert torch.equal(second, kept)
        second.zero_()
        assert torch.equal(module(x), kept)
        assert module.calls == 1


@torch.no_grad()
@pytest.mark.parametrize(
    "change",
    [
        lambda module: module.linear.weight.mul_(2.0),
        lambda module: module.load_state_dict(_Counted().state_dict()),
        lambda module: module.double().float(),
        lambda module: setattr(module.linear, "bias", nn.Parameter(torch.ones(4))),
    ],
)
def test_changed_parameters_are_noticed(change: Any) -> None:
    module, x = _module(), torch.randn(2, 4)
    with reuse_module(module):
        module(x)
        change(module)
        found = module(x)
        assert module.calls == 2
    assert torch.equal(found, module(x))


def test_training_and_gradients_go_to_the_module() -> None:
    module, x = _module(), torch.randn(2, 4)
    with reuse_module(module) as cache:
        for _ in range(2):
            module(x).sum().backward()
        assert module.linear.weight.grad is not None
        module.requires_grad_(False)
        for _ in range(2):
            module(x.clone().requires_grad_()).sum().backward()
        module.train()
        module(x)
        assert module.calls == 5
        assert dict(cache.stats().bypassed) == {"a gradient is wanted": 4, "training": 1}


@torch.no_grad()
def test_arguments_that_have_no_bytes_go_to_the_module() -> None:
    module, x = _module(), torch.randn(2, 4)
    with reuse_module(module) as cache:
        module(x, more=object())
        module(x, more=torch.ones(2).to_sparse())
        assert dict(cache.stats().bypassed) == {
            "an argument of type object": 1,
            "a tensor without plain elements": 1,
        }


@torch.no_grad()
def test_outputs_stay_within_the_budget() -> None:
    module = _module()
    with reuse_module(module, budget=100, policy="lru") as cache:
        inputs = [torch.randn(2, 4) for _ in range(8)]
        for x in inputs:
            module(x)
        assert cache.stats().bytes <= 100
        assert cache.stats().evictions == 5


@torch.no_grad()
def test_autocast_is_part_of_the_key() -> None:
    module, x = _module(), torch.randn(2, 4)
    with reuse_module(module):
        module(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert module(x).dtype == torch.bfloat16


def test_bad_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="reuse_module: module"):
        reuse_module(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reuse_module: policy"):
        reuse_module(_module(), policy="x")

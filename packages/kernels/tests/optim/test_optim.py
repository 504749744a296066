"""Optimisers move parameters as torch's do, and share their state with them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torchyard_kernels import optim
from torchyard_kernels.optim import StepOptionError

VECTORS = [(3, 4), (17,), (), (2, 3, 5), (64, 33)]
MATRICES = [(3, 4), (64, 33), (40, 70)]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", {}),
    "adamw amsgrad": ("AdamW", {"amsgrad": True, "maximize": True, "lr": 0.01}),
    "adamw decay": ("AdamW", {"weight_decay": 0.3, "eps": 1e-3, "betas": (0.5, 0.7)}),
    "adafactor": ("Adafactor", {}),
    "adafactor decay": ("Adafactor", {"maximize": True, "weight_decay": 0.1, "d": 2.0}),
    "adafactor eps": ("Adafactor", {"eps": (1e-4, 1e-2), "beta2_decay": -0.5}),
    "muon": ("Muon", {}),
    "muon plain": ("Muon", {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
}
cases = pytest.mark.parametrize("case", CASES)


def shapes_of(name: str) -> list[tuple[int, ...]]:
    return MATRICES if name == "Muon" else VECTORS


def twins(name: str, dtype: torch.dtype) -> tuple[list[Any], list[Any]]:
    torch.manual_seed(0)
    values = [torch.randn(shape).to(dtype) for shape in shapes_of(name)]
    return tuple([torch.nn.Parameter(v.clone()) for v in values] for _ in range(2))  # type: ignore[return-value]


def gradients(*groups: list[Any]) -> Iterator[None]:
    """Give all groups the same gradients, again and again; sometimes to some parameters only."""
    for step in range(8):
        for number, params in enumerate(zip(*groups, strict=True)):
            gradient = torch.randn(params[0].shape)
            for param in params:
                some = step == 2 and number == 1
                param.grad = None if some else gradient.to(param.dtype)
        yield


@cases
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_every_step_is_torchs(case: str, dtype: torch.dtype) -> None:
    name, options = CASES[case]
    own, others = twins(name, dtype)
    mine = getattr(optim, name)(own, **options)
    theirs = getattr(torch.optim, name)(others, **options)

    # Muon rounds to bfloat16 in the middle, and what is added is at most the learning rate; others
    # differ in the order of roundings, of which a step makes some ten.
    eps = torch.finfo(dtype).eps * 64
    atol = eps if name != "Muon" else 1e-3 * torch.finfo(torch.bfloat16).eps
    for _ in gradients(own, others):
        mine.step()
        theirs.step()
        for param, other in zip(own, others, strict=True):
            torch.testing.assert_close(param, other, rtol=eps * 16, atol=atol * 16)


@cases
def test_a_state_of_torchs_goes_on_here_and_back(case: str) -> None:
    name, options = CASES[case]
    own, others = twins(name, torch.float32)
    mine = getattr(optim, name)(own, **options)
    theirs = getattr(torch.optim, name)(others, **options)
    for step, _ in enumerate(gradients(own, others)):
        mine.step()
        theirs.step()
        if step in (2, 5):
            here, there = copy.deepcopy((mine.state_dict(), theirs.state_dict()))
            assert here["param_groups"][0].keys() == there["param_groups"][0].keys()
            for index, state in there["state"].items():
                kinds = {key: (value.dtype, value.shape) for key, value in state.items()}
                found = here["state"][index].items()
                assert {key: (value.dtype, value.shape) for key, value in found} == kinds
            mine = getattr(optim, name)(own)
            theirs = getattr(torch.optim, name)(others)
            mine.load_state_dict(there)
            theirs.load_state_dict(here)
    for param, other in zip(own, others, strict=True):
        torch.testing.assert_close(param, other, rtol=1e-4, atol=1e-5)


@cases
def test_bfloat16_parameters_are_nearer_to_the_exact_step_than_torchs(case: str) -> None:
    name, options = CASES[case]
    own, others = twins(name, torch.bfloat16)
    exact = [torch.nn.Parameter(param.detach().double()) for param in own]
    mine = getattr(optim, name)(own, **options)
    theirs = getattr(torch.optim, name)(others, **options)
    truth = getattr(torch.optim, name)(exact, **options)
    next(gradients(own, others, exact))
    for optimizer in (mine, theirs, truth):
        optimizer.step()

    def error(params: list[Any]) -> float:
        return max(float((p - e).detach().abs().max()) for p, e in zip(params, exact, strict=True))

    # Half a unit in the last place of a bfloat16 parameter, of at most 4, is the floor of both;
    # torch's norms of bfloat16 tensors are bfloat16.
    floor = 4 * torch.finfo(torch.bfloat16).eps / 2
    assert error(own) <= max(error(others), floor) * (1 + 2**-6)


def test_lion_follows_its_equations() -> None:
    torch.manual_seed(0)
    values = [torch.randn(shape, dtype=torch.float64) for shape in VECTORS]
    for maximize in (False, True):
        params = [torch.nn.Parameter(value.clone()) for value in values]
        optimizer = optim.Lion(params, 0.1, (0.8, 0.6), 0.3, maximize=maximize)
        expected, moments = [v.clone() for v in values], [torch.zeros_like(v) for v in values]
        for _ in gradients(params):
            for number, param in enumerate(params):
                if param.grad is None:
                    continue
                g = -param.grad if maximize else param.grad
                direction = torch.sign(0.8 * moments[number] + 0.2 * g)
                expected[number] = expected[number] * (1 - 0.1 * 0.3) - 0.1 * direction
                moments[number] = 0.6 * moments[number] + 0.4 * g
            optimizer.step()
        for param, value, moment in zip(params, expected, moments, strict=True):
            torch.testing.assert_close(param.detach(), value)
            torch.testing.assert_close(optimizer.state[param]["exp_avg"], moment)


@pytest.mark.parametrize("name", ["AdamW", "Adafactor", "Lion", "Muon"])
def test_groups_have_their_own_options_and_a_closure_gives_the_loss(name: str) -> None:
    first, second = (torch.nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    optimizer = getattr(optim, name)([{"params": [first]}, {"params": [second], "lr": 0.0}])
    seen = []

    def closure() -> torch.Tensor:
        seen.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = (first.square() + second.square()).sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 24
    assert seen == [True]
    assert not torch.equal(first.detach(), torch.ones(3, 4))
    assert torch.equal(second.detach(), torch.ones(3, 4))


def test_a_step_is_one_call_for_all_counters_and_one_for_all_parameters() -> None:
    params = [torch.nn.Parameter(torch.randn(7)) for _ in range(30)]
    optimizer = optim.AdamW(params)
    for param in params:
        param.grad = torch.randn(7)
    with torch.profiler.profile() as profile:
        optimizer.step()
    calls = {event.key: event.count for event in profile.key_averages()}
    assert calls["torchyard_kernels::pointwise_"] == 2


@pytest.mark.parametrize("option", ["capturable", "differentiable"])
def test_options_of_torchs_that_a_step_lacks_are_refused(option: str) -> None:
    params = [torch.nn.Parameter(torch.ones(2))]
    theirs = torch.optim.AdamW(params)
    optimizer = optim.AdamW(params)
    state = theirs.state_dict()
    state["param_groups"][0][option] = True
    optimizer.load_state_dict(state)
    params[0].grad = torch.ones(2)
    with pytest.raises(StepOptionError, match=rf"AdamW: {option}: expected False, got True"):
        optimizer.step()


@pytest.mark.parametrize("name", ["AdamW", "Lion"])
def test_sparse_gradients_are_refused(name: str) -> None:
    weight = torch.nn.Parameter(torch.ones(4, 2))
    weight.grad = torch.eye(4)[:, :2].to_sparse()
    with pytest.raises(StepOptionError, match="expected dense real gradients, got a sparse one"):
        getattr(optim, name)([weight]).step()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr: expected a finite number of at least 0"),
        ({"betas": (0.9, 1.0)}, "betas.1.: expected a number of at least 0 and less than 1"),
        ({"weight_decay": -0.1}, "weight_decay: expected a finite number of at least 0"),
    ],
    ids=["lr", "betas", "decay"],
)
def test_lions_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optim.Lion([torch.nn.Parameter(torch.ones(2))], **options)


def test_options_of_torchs_that_change_nothing_are_taken():
    start = torch.randn(3, 4)
    moved = []
    for options in ({}, {"foreach": True}, {"fused": True}, {"foreach": False, "fused": None}):
        param = torch.nn.Parameter(start.clone())
        optimiser = optim.AdamW([param], capturable=False, differentiable=False, **options)
        param.grad = torch.sin(start)
        optimiser.step()
        moved.append(param.detach())
    assert all(torch.equal(moved[0], other) for other in moved)
    optim.Adafactor([torch.nn.Parameter(start)], foreach=True)
    with pytest.raises(ValueError, match="at most one of foreach and fused"):
        optim.AdamW([torch.nn.Parameter(start)], foreach=True, fused=True)
    with pytest.raises(TypeError, match="AdamW: fused"):
        optim.AdamW([torch.nn.Parameter(start)], fused="yes")


@pytest.mark.parametrize("name", ["capturable", "differentiable"])
def test_options_that_a_step_does_not_follow_are_refused_when_they_are_given(name):
    with pytest.raises(StepOptionError, match=f"AdamW: {name}: expected False"):
        optim.AdamW([torch.nn.Parameter(torch.ones(2))], **{name: True})

"""Steps of torch's optimisers, by what the registry chooses, or left to torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import torchyard
from torchyard_compile import RerouteMismatchError, reroute

_Make = Callable[[Iterable[Any]], Optimizer]


def _parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    return [
        nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        for shape in ((5, 7), (4, 3))
    ]


def _give_gradients(parameters: Iterable[Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


REROUTED: dict[str, _Make] = {
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "AdamW maximize": lambda p: torch.optim.AdamW(p, 0.01, maximize=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "AdamW rate as a tensor": lambda p: torch.optim.AdamW(p, torch.tensor(0.01)),
    "AdamW fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "AdamW of groups": lambda p: torch.optim.AdamW(
        [{"params": [one], "lr": 0.01 * (i + 1)} for i, one in enumerate(p)]
    ),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "Adam decoupled": lambda p: torch.optim.Adam(
        p, 0.01, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "Adafactor": lambda p: torch.optim.Adafactor(p, 0.01),
    "Muon": lambda p: torch.optim.Muon(p, 0.01),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", REROUTED)
def test_steps_give_what_torchs_give(name: str, dtype: torch.dtype) -> None:
    theirs, ours = _parameters(dtype), _parameters(dtype)
    stock, changed = REROUTED[name](theirs), REROUTED[name](ours)
    rerouted = reroute(changed, verify=True)
    for seed in range(3):
        _give_gradients(theirs, seed)
        _give_gradients(ours, seed)
        stock.step()
        changed.step()
    (site,) = rerouted.explain()
    assert (site.function, site.calls) == (f"{name.split()[0]}.step", 3)
    assert site.implementation == "cpu.native"
    error = 2e-2 if dtype is torch.bfloat16 or name == "Muon" else 1e-5
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=error, atol=error)


def test_state_goes_on_with_and_without_rerouting() -> None:
    theirs, ours = _parameters(), _parameters()
    stock, changed = REROUTED["AdamW"](theirs), REROUTED["AdamW"](ours)
    rerouted = None
    for seed in range(4):
        if seed == 1:
            rerouted = reroute(changed)
        if seed == 2:
            changed.load_state_dict(copy.deepcopy(changed.state_dict()))
        if seed == 3:
            assert rerouted is not None
            rerouted.undo()
        _give_gradients(theirs, seed)
        _give_gradients(ours, seed)
        stock.step()
        changed.step()
    assert rerouted is not None
    assert [site.calls for site in rerouted.explain()] == [2]
    assert "step" not in vars(changed)
    torch.testing.assert_close(changed.state_dict()["state"], stock.state_dict()["state"])
    torch.testing.assert_close(ours, theirs)


class _Own(Tensor):
    pass


def _with_own_class() -> Optimizer:
    parameter = nn.Parameter(torch.randn(3).as_subclass(_Own))
    parameter.grad = torch.ones(3).as_subclass(_Own)
    return torch.optim.AdamW([parameter])


def _with_sparse_gradient() -> Optimizer:
    parameter = nn.Parameter(torch.randn(3))
    parameter.grad = torch.ones(3).to_sparse()
    return torch.optim.AdamW([parameter])


def _with_gradients(make: _Make) -> Optimizer:
    parameters = _parameters()
    _give_gradients(parameters, 0)
    return make(parameters)


def _scaled() -> Optimizer:
    optimizer = _with_gradients(REROUTED["AdamW fused"])
    # As torch.amp.GradScaler does around a fused step.
    vars(optimizer).update(grad_scale=torch.tensor(2.0), found_inf=torch.tensor(0.0))
    return optimizer


LEFT_ALONE: dict[str, tuple[Callable[[], Optimizer], str]] = {
    "weight decay of Adam": (
        lambda: _with_gradients(lambda p: torch.optim.Adam(p, weight_decay=0.1)),
        "added to gradients",
    ),
    "capturable": (
        lambda: _with_gradients(lambda p: torch.optim.AdamW(p, capturable=True)),
        "capturable",
    ),
    "a subclass": (_with_own_class, "_Own, no plain tensor"),
    "a scaler": (_scaled, "scaler of gradients"),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_ours_compute_otherwise_is_left_to_torch_with_the_reason(name: str) -> None:
    make, reason = LEFT_ALONE[name]
    torch.manual_seed(0)
    stock = make()
    torch.manual_seed(0)
    changed = make()
    rerouted = reroute(changed)
    errors: list[str] = []
    for optimizer in (stock, changed):
        try:
            optimizer.step()
        except (RuntimeError, AssertionError) as error:
            errors.append(str(error))
    assert len(errors) in (0, 2)
    assert len(set(errors)) <= 1
    (site,) = rerouted.explain()
    assert not site.implementation
    assert reason in site.reason
    for one, other in zip(changed.param_groups, stock.param_groups, strict=True):
        torch.testing.assert_close(one["params"], other["params"], rtol=0, atol=0)


def test_a_sparse_gradient_is_torchs_to_refuse() -> None:
    optimizer = _with_sparse_gradient()
    rerouted = reroute(optimizer)
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
    (site,) = rerouted.explain()
    assert "torch.sparse_coo" in site.reason


def test_a_step_with_a_closure_is_torchs() -> None:
    parameters = _parameters()
    optimizer = REROUTED["AdamW"](parameters)
    rerouted = reroute(optimizer)

    def closure() -> float:
        _give_gradients(parameters, 0)
        return 2.0

    assert optimizer.step(closure) == 2.0
    (site,) = rerouted.explain()
    assert not site.implementation
    assert "closure" in site.reason


def test_parameters_of_several_dtypes_are_moved_in_one_step() -> None:
    def mixed() -> list[nn.Parameter]:
        return _parameters() + _parameters(torch.bfloat16)

    theirs, ours = mixed(), mixed()
    stock, changed = REROUTED["AdamW"](theirs), REROUTED["AdamW"](ours)
    rerouted = reroute(changed)
    for one, parameters in ((stock, theirs), (changed, ours)):
        _give_gradients(parameters, 0)
        one.step()
    (site,) = rerouted.explain()
    assert (site.implementation, site.calls) == ("cpu.native", 1)
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)


def test_hooks_of_steps_are_called_once_and_in_their_order() -> None:
    optimizer = _with_gradients(REROUTED["AdamW"])
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    reroute(optimizer)
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    before = optimizer.param_groups[0]["params"][0].detach().clone()
    optimizer.step()
    assert seen == ["before", "after"]
    assert not torch.equal(before, optimizer.param_groups[0]["params"][0])


def test_a_scheduler_goes_around_a_rerouted_step(recwarn: pytest.WarningsRecorder) -> None:
    optimizer = _with_gradients(REROUTED["AdamW"])
    rerouted = reroute(optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()
    scheduler.step()
    rerouted.undo()
    optimizer.step()
    assert [site.calls for site in rerouted.explain()] == [1]
    assert not [one for one in recwarn if "lr_scheduler" in str(one.message)]
    assert optimizer.param_groups[0]["lr"] == 0.005
    with pytest.raises(ValueError, match="reroute it before, and once"):
        reroute(optimizer)


def test_the_registry_decides_and_a_demand_holds() -> None:
    optimizer = _with_gradients(REROUTED["AdamW"])
    rerouted = reroute(optimizer)
    with torchyard.use(pointwise="kernels.map"):
        optimizer.step()
    optimizer.step()
    ours, theirs = rerouted.explain()
    assert (ours.implementation, theirs.implementation) == ("cpu.native", "")
    assert "made of torch's own operators" in theirs.reason


def test_a_wrong_step_is_named_where_both_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchyard_kernels import optim

    def wrong(self: Optimizer) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter += 1

    monkeypatch.setattr(optim.AdamW, "step", wrong)
    optimizer = _with_gradients(REROUTED["AdamW"])
    reroute(optimizer, verify=True)
    with pytest.raises(RerouteMismatchError, match=r"AdamW\.step"):
        optimizer.step()


def test_a_step_inside_of_the_context_is_listed_with_what_to_write() -> None:
    optimizer = _with_gradients(REROUTED["AdamW"])
    other = _with_gradients(REROUTED["AdamW"])
    reroute(other)
    with reroute() as rerouted:
        optimizer.step()
        other.step()
    optimizer.step()
    (site,) = rerouted.explain()
    assert (site.function, site.calls, site.implementation) == ("AdamW.step", 1, "")
    assert "reroute(optimizer)" in site.reason


def test_an_optimiser_that_has_no_counterpart_is_refused() -> None:
    with pytest.raises(ValueError, match="Adafactor, Muon; got SGD"):
        reroute(torch.optim.SGD(_parameters()))

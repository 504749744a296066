"""Operators of ours are registered where torch's are missing or wrong, and are given back."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plugins.simulated.tests.apple.stand_in import DEVICE, failing, falling, missing, wrong
from torchyard_mps.operators import (
    PROGRAMS,
    ComputedOnCpuWarning,
    Outcome,
    Registration,
    Replaced,
    Support,
    _registration,
    probe,
    register,
)
from torchyard_mps.operators.replacements import REPLACEMENTS

_Planted = Callable[..., AbstractContextManager[None]]
_OPERATORS: Final = {one.program: one.operators for one in REPLACEMENTS}
_EVERY: Final = pytest.mark.parametrize("name", _OPERATORS)
_SVD: Final = ("linalg.svd", *_OPERATORS["linalg.svd"])


def _support(name: str) -> Support:
    (outcome,) = probe(DEVICE, {name: PROGRAMS[name]})
    return outcome.support


def _only(registration: Registration) -> Replaced:
    (one,) = registration.replaced
    return one


def test_what_torch_computes_right_is_left_to_torch() -> None:
    registration = register(DEVICE)
    assert [one.operator for one in registration.replaced] == list(_OPERATORS)
    assert not any(one.registered for one in registration.replaced)
    assert "  kthvalue: left as it is, native" in str(registration).splitlines()
    assert {one.support for one in probe(DEVICE)} == {Support.NATIVE}


@_EVERY
@pytest.mark.parametrize("planted", [missing, failing, wrong])
def test_what_the_device_lacks_or_computes_wrong_is_registered(
    planted: _Planted, name: str
) -> None:
    had = {missing: Support.MISSING, failing: Support.FAILS, wrong: Support.WRONG}[planted]
    # Its update returns the tensor that is changed, and its check nothing.
    if planted is wrong and "GradScaler" in name:
        had, planted = Support.FAILS, failing
    with planted(*_OPERATORS[name]):
        assert _support(name) is had
        with register(DEVICE, operators=[name]) as registration:
            one = _only(registration)
            assert (one.operator, one.registered, one.before.support) == (name, True, had)
            assert one.kernels == _OPERATORS[name]
            assert _support(name) is Support.OURS
            assert f"  {name}: registered, computed on the" in str(registration)
        assert _support(name) is had
    assert _support(name) is Support.NATIVE


def test_what_falls_to_the_cpu_is_replaced_by_what_the_device_computes_alone() -> None:
    names = ("kthvalue", "linalg.svd")
    planted = [operator for name in names for operator in _OPERATORS[name]]
    with falling(*planted), register(DEVICE, operators=names) as registration:
        by_name = {one.operator: one for one in registration.replaced}
        assert by_name["kthvalue"].registered
        assert not by_name["linalg.svd"].registered
        assert "left as it is, falls to the CPU: The operator" in str(registration)
        outcomes = probe(DEVICE, {name: PROGRAMS[name] for name in names})
    assert [one.support for one in outcomes] == [Support.OURS, Support.CPU]


def test_the_probe_says_which_kernels_of_ours_were_called_and_what_they_copied() -> None:
    with missing(*_OPERATORS["kthvalue"], *_OPERATORS["linalg.svd"]), register(DEVICE):
        outcomes = probe(DEVICE, {name: PROGRAMS[name] for name in ("kthvalue", "linalg.svd")})
    kth, svd = outcomes
    assert kth.text == "aten::kthvalue.values"
    # A matrix of 6 by 4 in float32, and its four singular values.
    assert svd.text == f"aten::_linalg_svd on the CPU, {6 * 4 * 4 + 4 * 4} bytes copied"
    assert min(kth.ratio, svd.ratio) > 0


def test_operators_stay_registered_where_the_caller_drops_what_it_got() -> None:
    with missing("kthvalue.values"):
        register(DEVICE, operators=["kthvalue"])
        gc.collect()
        assert _support("kthvalue") is Support.OURS
        # Ours are not replaced by ours.
        again = register(DEVICE, operators=["kthvalue"])
        assert "left as it is, ours" in str(again)
        (first,) = (one for one in _registration._REGISTRATIONS if one is not again)
        first.remove()
        first.remove()
        again.remove()
        assert _support("kthvalue") is Support.MISSING
    assert not _registration._REGISTRATIONS


def test_ours_is_given_back_where_it_is_wrong_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def ones(self: Tensor, index: Tensor) -> Tensor:
        return torch.ones_like(index, dtype=self.dtype)

    bad = [
        replace(one, kernels={"take": ones}) if one.program == "take" else one
        for one in REPLACEMENTS
    ]
    monkeypatch.setattr(_registration, "REPLACEMENTS", bad)
    with missing("take", "take.out"), register(DEVICE, operators=["take"]) as registration:
        one = _only(registration)
        assert not one.registered
        assert one.after is not None
        assert one.after.support is Support.WRONG
        assert "take: not registered, since ours was wrong: off by" in str(registration)
        assert _support("take") is Support.MISSING


def test_a_kernel_that_is_not_called_is_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    # Torch's gives another result each time: no reason to keep what computes something else.
    calls: list[int] = []

    def changing(on: Callable[[Tensor], Tensor]) -> Tensor:
        calls.append(1)
        return on(torch.ones(2)) * (2 if len(calls) == 2 else 1)

    monkeypatch.setattr(_registration, "PROGRAMS", MappingProxyType({"take": changing}))
    registration = register(DEVICE, operators=["take"])
    one = _only(registration)
    assert (one.before.support, one.registered) == (Support.WRONG, False)
    assert one.after is not None
    assert one.after.support is Support.NATIVE


def _svdvals(size: int) -> Tensor:
    return torch.linalg.svdvals(torch.ones(size, size, device=DEVICE))


def test_the_cpus_part_is_said_once_with_operator_bytes_reason_and_line() -> None:
    name, *operators = _SVD
    with missing(*operators), register(DEVICE, operators=[name]):
        with pytest.warns(ComputedOnCpuWarning) as said:
            _svdvals(3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _svdvals(4)
            probe(DEVICE, {name: PROGRAMS[name]})
    (one,) = said
    text = str(one.message)
    assert "aten::_linalg_svd is computed on the CPU" in text
    assert f"{(9 + 3) * 4} bytes" in text
    assert "torch's was missing: There were no tensor arguments" in text
    assert one.filename == __file__


def test_a_trial_leaves_the_warning_to_the_user() -> None:
    name, *operators = _SVD
    with missing(*operators):
        for _ in range(2):
            with register(DEVICE, operators=[name]):
                probe(DEVICE, {name: PROGRAMS[name]})
                with pytest.warns(ComputedOnCpuWarning, match="_linalg_svd"):
                    _svdvals(2)


def test_a_gradient_on_the_cpu_is_said_as_well() -> None:
    names = ["ctc_loss", "ctc_loss, gradient"]
    planted = [operator for name in names for operator in _OPERATORS[name]]
    logs = torch.randn(6, 1, 4, device=DEVICE).log_softmax(-1).requires_grad_()
    with missing(*planted), register(DEVICE, operators=names):
        with pytest.warns(ComputedOnCpuWarning, match=r"aten::_ctc_loss is"):
            loss = functional.ctc_loss(logs, torch.tensor([[1, 2]]), (6,), (2,))
        with pytest.warns(ComputedOnCpuWarning, match=r"aten::_ctc_loss_backward is"):
            loss.backward()
    assert logs.grad is not None
    assert logs.grad.device.type == DEVICE


def test_what_the_device_computes_is_not_warned_of() -> None:
    with missing("kthvalue.values"), register(DEVICE), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.tensor([3.0, 1.0], device=DEVICE).kthvalue(1).values.item() == 1.0


def test_transforms_reach_our_kernels() -> None:
    x = torch.randn(3, 4, 5)

    def second(row: Tensor) -> Tensor:
        return row.kthvalue(2).values

    def total(given: Tensor) -> Tensor:
        return second(given).square().sum()

    compiled: Any = torch.compile(second, backend="aot_eager", fullgraph=True)
    with missing("kthvalue.values"), register(DEVICE, operators=["kthvalue"]):
        on_device = x.to(DEVICE)
        found = (
            torch.vmap(second)(on_device),
            torch.func.grad(total)(on_device),
            compiled(on_device),
        )
        expected = torch.vmap(second)(x), torch.func.grad(total)(x), second(x)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"device": 3}, TypeError, "register: device: expected a torch.device or its name"),
        ({"device": "gpu0"}, ValueError, "register: device: expected a torch.device"),
        ({"device": "mps"}, RuntimeError, "expected a device that torch finds, got mps: "),
        ({"operators": ["svd"]}, ValueError, r"register: operators\[0\]: expected 'kthvalue' or"),
        ({"operators": "take"}, TypeError, "register: operators: expected a list or a tuple"),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        register(**{"device": DEVICE, **arguments})


def test_an_outcome_without_text_ends_without_a_colon() -> None:
    outcome = Outcome("take", Support.NATIVE, "")
    assert str(Replaced("take", False, outcome, None, ("take",), False)).endswith(", native")

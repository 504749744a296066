"""Operators of a device are tried, and each is native, on the CPU, missing, failing or wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from torchyard import CheckStatus
from torchyard_mps.checks import memory_check, operator_checks, torchyard_checks
from torchyard_mps.operators import PROGRAMS, Outcome, Support, probe
from torchyard_mps.operators._probe import all_warnings, on_cpu

_On = Callable[[Tensor], Tensor]


def _falling(on: _On) -> Tensor:
    if on is not on_cpu:
        warnings.warn(
            "The operator 'aten::kthvalue' will fall back to run on the CPU. (Triggered)",
            stacklevel=1,
        )
    return on(torch.ones(3))


def _missing(on: _On) -> Tensor:
    if on is not on_cpu:
        raise NotImplementedError("The operator 'aten::_ctc_loss' is not implemented\nfor MPS")
    return torch.ones(3)


def _failing(on: _On) -> Tensor:
    if on is not on_cpu:
        raise RuntimeError("MPS backend out of memory\n(MPS allocated: 2 GB)")
    return torch.ones(3)


def _off(change: Callable[[Tensor], Tensor]) -> Callable[[_On], Tensor]:
    return lambda on: change(torch.ones(3)) if on is not on_cpu else torch.ones(3)


_PLANTED: dict[str, tuple[Callable[[_On], Any], Support, str]] = {
    "right": (lambda on: on(torch.ones(3)) * 2, Support.NATIVE, ""),
    "falling": (_falling, Support.CPU, "'aten::kthvalue' will fall back to run on the CPU."),
    "missing": (_missing, Support.MISSING, "The operator 'aten::_ctc_loss' is not implemented"),
    "failing": (_failing, Support.FAILS, "MPS backend out of memory"),
    "a little off": (_off(lambda x: x * 1.001), Support.WRONG, "off by 0.001 of 1"),
    "NaN": (_off(lambda x: x * torch.nan), Support.WRONG, "off by nan"),
    "another shape": (_off(lambda x: x[:2]), Support.WRONG, "expected torch.float32 [3], got"),
    "another dtype": (_off(lambda x: x.double()), Support.WRONG, "got torch.float64"),
}


@pytest.mark.parametrize("name", _PLANTED)
def test_what_is_planted_is_found(name: str) -> None:
    program, support, text = _PLANTED[name]
    (outcome,) = probe("cpu", {name: program})
    assert (outcome.operator, outcome.support) == (name, support)
    assert text in outcome.text
    assert (outcome.ratio > 0) == (support not in (Support.MISSING, Support.FAILS))


def test_the_cpu_has_every_operator_of_the_table() -> None:
    outcomes = probe("cpu")
    assert len(outcomes) == len(PROGRAMS) >= 30
    assert {outcome.support for outcome in outcomes} == {Support.NATIVE}


def test_a_program_gives_the_same_each_time_but_for_rounding() -> None:
    # LAPACK's least squares round by where memory happens to lie.
    for program in PROGRAMS.values():
        torch.testing.assert_close(program(on_cpu), program(on_cpu), rtol=1e-5, atol=1e-6)


def test_doctor_shows_what_is_not_native() -> None:
    outcomes = [
        Outcome("sort", Support.NATIVE, "", 1.0),
        Outcome("eig", Support.CPU, "falls back", 40.0),
        Outcome("ctc_loss", Support.MISSING, "not implemented"),
        Outcome("svd", Support.FAILS, "out of memory"),
        Outcome("conv3d", Support.WRONG, "off by 1", 2.0),
    ]
    whole, *rest = operator_checks(outcomes)
    assert whole.status is CheckStatus.FAIL
    assert whole.text == "1 native, 1 falls to the CPU, 1 missing, 1 fails, 1 wrong"
    assert [(check.name, check.status) for check in rest] == [
        ("eig", CheckStatus.WARN),
        ("ctc_loss", CheckStatus.WARN),
        ("svd", CheckStatus.WARN),
        ("conv3d", CheckStatus.FAIL),
    ]
    assert "40 times the CPU's time" in rest[0].text
    assert operator_checks(outcomes[:2])[0].status is CheckStatus.PASS


_REGISTERED: Final = "torchyard_mps.operators.register() has it computed"


@pytest.mark.parametrize(
    ("operator", "support", "status", "hint"),
    [
        ("kthvalue", Support.MISSING, CheckStatus.WARN, f"{_REGISTERED} on the device"),
        ("kthvalue", Support.CPU, CheckStatus.WARN, f"{_REGISTERED} on the device"),
        ("kthvalue", Support.WRONG, CheckStatus.FAIL, f"{_REGISTERED} on the device"),
        ("kthvalue", Support.OURS, CheckStatus.PASS, ""),
        ("ctc_loss", Support.MISSING, CheckStatus.WARN, f"{_REGISTERED} on the CPU, with a"),
        ("ctc_loss", Support.CPU, CheckStatus.WARN, ""),
        ("histc", Support.MISSING, CheckStatus.WARN, "compute it on the CPU, or set PYTORCH_"),
    ],
)
def test_doctor_says_where_ours_helps(
    operator: str, support: Support, status: CheckStatus, hint: str
) -> None:
    _, check = operator_checks([Outcome(operator, support, "")])
    assert check.status is status
    assert check.hint.startswith(hint)
    assert bool(check.hint) == bool(hint)


def test_each_fallback_is_seen_though_torch_warns_of_the_first_alone() -> None:
    def warns(on: _On) -> Tensor:
        # A warning of torch's that it gives once in a process, as that of fallbacks is.
        x = torch.ones((), requires_grad=True)
        float(x)
        return on(torch.ones(2))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warns(on_cpu)
    before = torch.is_warn_always_enabled()
    for _ in range(2):
        with all_warnings() as said:
            warns(on_cpu)
        assert len(said) == 1
        assert "Converting a tensor with requires_grad=True" in str(said[0].message)
    assert torch.is_warn_always_enabled() == before


def test_memory_that_is_nearly_used_up_gets_advice() -> None:
    assert memory_check(1 << 30, 16 << 30).status is CheckStatus.PASS
    much = memory_check(15 << 30, 16 << 30)
    assert much.status is CheckStatus.WARN
    assert "empty_cache" in much.hint


def test_without_an_apple_gpu_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    (check,) = torchyard_checks()
    assert check.status is CheckStatus.UNVERIFIED

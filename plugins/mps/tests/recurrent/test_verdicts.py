"""What the kernels of recurrent layers do not compute is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from packages.kernels.tests.recurrent.cases import Case, misses
from plugins.mps.tests.emulated import emulated
from torchyard import ReasonCode, Registry, read_platform_file
from torchyard_conformance._kernels._cases._recurrent import BackwardCase
from torchyard_conformance._kernels._ruler import compare
from torchyard_kernels.recurrent.contract import (
    BACKWARD,
    FORWARD,
    RecurrentKind,
    RecurrentRequest,
)
from torchyard_mps.implementations import torchyard_implementations
from torchyard_mps.implementations._recurrent import supports_recurrent

_M3: Final = read_platform_file("m3").platform
_REQUEST: Final = RecurrentRequest("mps", "bfloat16", RecurrentKind.GRU, 128, 64, 256, 256)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kind": RecurrentKind.LSTM, "proj_size": 64, "num_layers": 3, "bidirectional": True},
        {"dtype": "float32", "ragged": True, "bias": False, "deterministic": True},
        {"grad": True, "reserve": True},
    ],
)
def test_what_the_kernels_compute_is_accepted(changes: dict[str, Any]) -> None:
    assert supports_recurrent(replace(_REQUEST, **changes), _M3).supported


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"device": "cpu"}, ReasonCode.DEVICE, "got cpu"),
        ({"dtype": "float64"}, ReasonCode.DTYPE, "got float64"),
        ({"grad": True}, ReasonCode.GRAD, "records its own"),
        ({"steps": 2**31}, ReasonCode.SHAPE, f"got {2**31}"),
        ({"hidden_size": 2**32}, ReasonCode.SHAPE, f"got {2**32}"),
    ],
)
def test_what_they_do_not_is_refused_by_code(
    changes: dict[str, Any], code: ReasonCode, text: str
) -> None:
    verdict = supports_recurrent(replace(_REQUEST, **changes), _M3)
    assert (verdict.supported, verdict.code) == (False, code)
    assert text in verdict.text
    assert verdict.hint or code not in (ReasonCode.DTYPE, ReasonCode.GRAD)


def test_it_is_chosen_where_a_user_enlists_it() -> None:
    plain, enlisted = (
        Registry(platform=_M3, environ=environ)
        for environ in ({}, {"TORCHYARD_ENLIST": "mps.metal"})
    )
    assert plain.decide(FORWARD, _REQUEST).name == "kernels.aten"
    assert enlisted.decide(FORWARD, _REQUEST).name == "mps.metal"
    kept = replace(_REQUEST, grad=True, reserve=True)
    assert enlisted.decide(FORWARD, kept).name == "mps.metal"
    assert plain.decide(BACKWARD, kept).name == "kernels.steps"
    assert enlisted.decide(BACKWARD, kept).name == "mps.metal"


def test_what_the_hook_loads_computes() -> None:
    (offered,) = torchyard_implementations(contract=FORWARD)
    call = Case(RecurrentKind.LSTM, steps=1).call()
    with emulated():
        assert misses(offered.load()(call), call) == []
    (offered,) = torchyard_implementations(contract=BACKWARD)
    case = BackwardCase("", steps=1)
    with emulated():
        found = offered.load()(*case.given())
    assert max(compare(case, case.named_outputs(found)).values()) <= 1


def test_without_an_apple_gpu_the_kernel_says_so() -> None:
    (offered,) = torchyard_implementations(contract=FORWARD)
    with pytest.raises(ValueError, match="linear_product: expected tensors on mps"):
        offered.load()(Case(RecurrentKind.GRU, steps=1).call())
    (offered,) = torchyard_implementations(contract=BACKWARD)
    with pytest.raises(ValueError, match="recurrent_gradient: expected tensors on mps"):
        offered.load()(*BackwardCase("").given())

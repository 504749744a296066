"""What the kernel of maps does not compute is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from packages.kernels.tests.pointwise.calls import call_of
from plugins.mps.tests.emulated import emulated
from torchyard import Platform, ReasonCode, Registry, read_platform_file
from torchyard_kernels.pointwise.contract import POINTWISE, PointwiseRequest
from torchyard_mps.implementations import torchyard_implementations
from torchyard_mps.implementations._pointwise import supports_pointwise
from torchyard_programs import trace

_M3: Final = read_platform_file("m3").platform
_HALF: Final = ("bfloat16", 1)
_NUMBER: Final = ("float", -1)


def _request(function: Callable[..., Any], *operands: Any, **changes: Any) -> PointwiseRequest:
    names = tuple((f"x{number}", None) for number in range(len(operands)))
    text, captured = trace(function, "fn", names, torch.device("cpu"))
    traits = tuple((str(one.dtype)[6:], min(one.ndim, 1)) for one in captured)
    return replace(PointwiseRequest("mps", text, operands, traits), **changes)


_SCALE: Final = _request(lambda x, a: torch.tanh(x) * (1 - a), _HALF, _NUMBER)


@pytest.mark.parametrize(
    "request_",
    [
        _SCALE,
        _request(lambda x: (x, x * 2), _HALF, out=("bfloat16", "float32")),
        _request(lambda x: x & 3, ("int64", 0)),
        _request(lambda x: tuple(x * n for n in range(29)), _HALF),
    ],
)
def test_what_the_kernel_computes_is_accepted(request_: PointwiseRequest) -> None:
    assert supports_pointwise(request_, _M3).supported


_ROW: Final = torch.ones(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("request_", "platform", "code", "text"),
    [
        (replace(_SCALE, device="cpu"), _M3, ReasonCode.DEVICE, "got cpu"),
        (_SCALE, replace(_M3, accelerators=()), ReasonCode.DEVICE, "found none"),
        (_request(lambda x: x, ("float64", 1)), _M3, ReasonCode.DTYPE, "got float64"),
        (_request(lambda x: x, ("complex64", 1)), _M3, ReasonCode.DTYPE, "got complex64"),
        (_request(lambda x: x * _ROW, _HALF), _M3, ReasonCode.DTYPE, "got float64"),
        (_request(lambda x: x, _HALF, out=("float64",)), _M3, ReasonCode.DTYPE, "got float64"),
        (_request(lambda x: x.double() + 1, _HALF), _M3, ReasonCode.OTHER, "float64"),
        (_request(lambda x: torch.tanh(x.double()), _HALF), _M3, ReasonCode.OTHER, "float64"),
        (
            _request(lambda x, a: torch.full_like(x, a), ("int64", 1), _NUMBER),
            *(_M3, ReasonCode.OTHER, "a number as float64"),
        ),
        (
            _request(lambda x: tuple(x * n for n in range(30)), _HALF),
            *(_M3, ReasonCode.SHAPE, "got 1 inputs, 30 results and 0 captured"),
        ),
    ],
)
def test_what_it_does_not_is_refused_by_code(
    request_: PointwiseRequest, platform: Platform, code: ReasonCode, text: str
) -> None:
    verdict = supports_pointwise(request_, platform)
    assert (verdict.supported, verdict.code) == (False, code)
    assert text in verdict.text


def test_it_is_chosen_where_a_user_enlists_it() -> None:
    plain, enlisted = (
        Registry(platform=_M3, environ=environ).decide(POINTWISE, _SCALE).name
        for environ in ({}, {"TORCHYARD_ENLIST": "mps.metal"})
    )
    assert (plain, enlisted) == ("kernels.map", "mps.metal")


def test_what_the_hook_loads_computes() -> None:
    (offered,) = torchyard_implementations(contract=POINTWISE)
    with emulated():
        ((found,),) = offered.load()(call_of(lambda x: x + 1, [torch.ones(3)]))
    assert found.tolist() == [2.0, 2.0, 2.0]


def test_without_an_apple_gpu_the_kernel_says_so() -> None:
    (offered,) = torchyard_implementations(contract=POINTWISE)
    with pytest.raises(ValueError, match="pointwise_map: expected tensors on mps"):
        offered.load()(call_of(lambda x: x + 1, [torch.ones(3)]))

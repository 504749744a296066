"""What the kernel of products does not compute is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from packages.kernels.tests.linear.calls import CALL, computed, normal, with_functions
from plugins.mps.tests.emulated import emulated
from torchyard import ReasonCode, Registry, read_platform_file
from torchyard_kernels.linear.contract import LINEAR, LinearRequest
from torchyard_mps.implementations import torchyard_implementations
from torchyard_mps.implementations._linear import supports_linear


def test_verdicts() -> None:
    machine = read_platform_file("m3").platform
    request = LinearRequest("mps", "float16", 16, 4096, 4096)
    assert supports_linear(request, machine).supported
    assert supports_linear(replace(request, weight="int4"), machine).supported
    rounded = replace(request, weight="int8", weight_options=(("activation", 8),))
    for other, code in (
        (replace(request, dtype="float64"), ReasonCode.DTYPE),
        (replace(request, weight="other"), ReasonCode.LAYOUT),
        (rounded, ReasonCode.LAYOUT),
        (replace(request, device="cpu"), ReasonCode.DEVICE),
    ):
        assert supports_linear(other, machine).code == code
    enlisted = Registry(platform=machine, environ={"TORCHYARD_ENLIST": "mps.metal"})
    assert enlisted.decide(LINEAR, replace(request, weight="int4")).name == "mps.metal"


def test_functions_that_capture_tensors_are_accepted() -> None:
    row, column = torch.rand(35, 1), normal(33)
    call = with_functions(lambda x: x * row, lambda y: y + column, call=CALL)
    request = replace(call.request(), device="mps")
    assert supports_linear(request, read_platform_file("m3").platform).supported


def test_more_tensors_than_there_are_buffers_for_are_refused() -> None:
    rows = [torch.rand(35, 1) for _ in range(13)]

    def added(x: Any) -> Any:
        for row in rows:
            x = x + row
        return x

    call = with_functions(added, added, call=CALL)
    request = replace(call.request(), device="mps")
    verdict = supports_linear(request, read_platform_file("m3").platform)
    assert verdict.code == ReasonCode.OTHER
    assert "expected at most 24 captured tensors, got 26" in verdict.text


def test_captured_float64_is_refused() -> None:
    column = normal(33, dtype=torch.float64)
    call = with_functions(epilogue=lambda y: y + column, call=CALL)
    verdict = supports_linear(
        replace(call.request(), device="mps"), read_platform_file("m3").platform
    )
    assert verdict.code == ReasonCode.OTHER
    assert "epilogue: computes float64" in verdict.text


def test_float64_of_a_function_is_refused() -> None:
    call = with_functions(epilogue=lambda y: torch.tanh(y.double()).float(), call=CALL)
    verdict = supports_linear(
        replace(call.request(), device="mps"), read_platform_file("m3").platform
    )
    assert "tanh of float64" in verdict.text


def test_what_the_hook_loads_computes() -> None:
    (offered,) = torchyard_implementations(contract=LINEAR)
    with emulated():
        out = offered.load()(CALL)
    torch.testing.assert_close(out, computed(CALL, torch.float64).half(), rtol=2e-3, atol=2e-3)

"""The plugin as torchyard sees it, on a machine without an Apple GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from packages.attention.tests.attention_calls import call_of
from packages.attention.tests.paged.paged_calls import paged
from plugins.mps.tests.attention.gradient_runs import given_for, worst
from plugins.mps.tests.emulated import emulated
from torchyard import Platform, PluginState, Registry, read_platform_file, registry
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionRequest,
    MaskKind,
    ScoreKind,
)
from torchyard_attention.pages import reads_pages
from torchyard_attention.tolerance import Ruler, report
from torchyard_mps._family import family
from torchyard_mps.device import torchyard_probe_device
from torchyard_mps.implementations import torchyard_implementations
from torchyard_mps.implementations._attention import supports_backward, supports_forward
from torchyard_programs import trace

_APPLE: Final = ("m1", "m2", "m3", "m4", "m5")
_REQUEST: Final = AttentionRequest("mps", "bfloat16", 1, 32, 8, 2048, 2048, 128, 128)
_ENLISTED: Final = {"TORCHYARD_ENLIST": "mps.metal"}


def _machine(file: str = "m3", **changes: Any) -> Platform:
    found = read_platform_file(file).platform
    return replace(
        found, accelerators=tuple(replace(item, **changes) for item in found.accelerators)
    )


def _scored(function: Any) -> AttentionRequest:
    inputs = (("s", torch.float32), *((name, torch.int64) for name in "bhqk"))
    text, captured = trace(function, "score_mod", inputs, torch.device("cpu"))
    traits = tuple((str(one.dtype).removeprefix("torch."), one.ndim) for one in captured)
    return replace(_REQUEST, score=ScoreKind.POINTWISE, score_text=text, score_captured=traits)


def test_torchyard_finds_the_plugin_healthy() -> None:
    (plugin,) = (plugin for plugin in registry().plugins if plugin.name == "mps")
    assert plugin.state in {PluginState.DISCOVERED, PluginState.ACTIVE}, plugin


def test_importing_imports_no_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import torchyard_mps.device\n"
        "from torchyard_mps.implementations import torchyard_implementations\n"
        "print([item.name for item in torchyard_implementations(contract='attention/1')])\n"
    )
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert found.split() == ["['mps.metal']"]


def test_the_probe_agrees_with_torch_and_says_why_there_is_no_device() -> None:
    status = torchyard_probe_device(device="mps")
    assert status.available == torch.backends.mps.is_available()
    if not status.available:
        assert torch.__version__ in status.text
        assert "Mac" in status.hint


@pytest.mark.parametrize(
    ("architecture", "name", "expected"),
    [
        ("apple8", "", 8),
        ("", "Apple M1 Pro", 7),
        ("", "Apple M4 Max", 9),
        ("", "Apple M5", 10),
        ("", "Apple M9", 10),
        ("", "AMD Radeon Pro 5500M", None),
        ("sm_90", "", None),
    ],
)
def test_families(architecture: str, name: str, expected: int | None) -> None:
    (accelerator,) = _machine().accelerators
    assert family(replace(accelerator, architecture=architecture, name=name)) == expected


@pytest.mark.parametrize("name", _APPLE)
def test_kernels_that_ran_on_no_gpu_are_enlisted_by_name_alone(name: str) -> None:
    request = replace(_REQUEST, mask=MaskKind.BLOCKS, block_size=(128, 128))
    plain = Registry(platform=_machine(name), environ={}).decide(FORWARD, request)
    assert plain.name == "attention.tiled"
    assert ("mps.metal", "not listed") in [(c.name, str(c.outcome)) for c in plain.trace]
    enlisted = Registry(platform=_machine(name), environ=_ENLISTED)
    assert enlisted.decide(FORWARD, request).name == "mps.metal"
    assert enlisted.decide(BACKWARD, replace(request, grad=True)).name == "mps.metal"


@pytest.mark.parametrize(
    ("request_", "platform", "code"),
    [
        (replace(_REQUEST, device="cpu"), _machine(), "E_DEVICE"),
        (_REQUEST, replace(_machine(), accelerators=()), "E_DEVICE"),
        (_REQUEST, _machine(architecture="apple6"), "E_ISA"),
        (_REQUEST, _machine(architecture="", name="AMD Radeon"), "E_ISA"),
        (replace(_REQUEST, dtype="float64"), _machine(), "E_DTYPE"),
        (replace(_REQUEST, head_dim=257), _machine(), "E_HEAD_DIM"),
        (replace(_REQUEST, value_dim=0), _machine(), "E_HEAD_DIM"),
        (replace(_REQUEST, dropout=True), _machine(), "E_DROPOUT"),
        (replace(_REQUEST, kv_length=2**21), _machine(), "E_SHAPE"),
        (replace(_REQUEST, score=ScoreKind.POINTWISE), _machine(), "E_SCORE_MOD"),
    ],
)
def test_what_the_kernel_does_not_compute_is_refused_by_code(
    request_: AttentionRequest, platform: Platform, code: str
) -> None:
    assert supports_forward(_REQUEST, _machine()).supported
    for supports in (supports_forward, supports_backward):
        verdict = supports(request_, platform)
        assert (verdict.supported, str(verdict.code)) == (False, code)


def test_pages_are_read_by_the_forward_alone() -> None:
    request = replace(_REQUEST, page_size=16)
    verdict = supports_forward(request, _machine())
    assert verdict.supported
    assert "reads pages in place" in verdict.text
    refused = supports_backward(request, _machine())
    assert (refused.supported, str(refused.code)) == (False, "E_LAYOUT")
    assert "got pages of 16" in refused.text
    assert refused.hint


def test_score_programs_are_judged_by_what_metal_computes() -> None:
    slopes, wide = torch.ones(32), torch.ones(32, dtype=torch.float64)
    tables = [torch.zeros(4) for _ in range(16)]
    good = _scored(lambda s, b, h, q, k: s + slopes[h] * (k - q))
    assert supports_forward(good, _machine()).supported
    for function, text in (
        (lambda s, b, h, q, k: (s + wide[h]).float(), "float64, which Metal does not have"),
        (lambda s, b, h, q, k: s + sum(t[h] for t in tables), "at most 15 captured tensors"),
    ):
        verdict = supports_forward(_scored(function), _machine())
        assert not verdict.supported
        assert text in verdict.text


@pytest.mark.parametrize("name", ["plain", "causal", "grouped-2"])
def test_what_the_hook_loads_computes(name: str) -> None:
    (offered,) = torchyard_implementations(contract=FORWARD)
    call = call_of(name)
    with emulated():
        result = offered.load()(call)
    assert not (message := report(Ruler(call).compare(result))), message


def test_what_the_hook_loads_reads_pages_and_decodes() -> None:
    (offered,) = torchyard_implementations(contract=FORWARD)
    forward = offered.load()
    assert reads_pages(forward)
    call, whole = paged((300, 17))
    with emulated():
        result = forward(call)
    assert not (message := report(Ruler(whole).compare(result))), message


def test_what_the_hook_loads_computes_nothing_of_no_rows() -> None:
    (offered,) = torchyard_implementations(contract=FORWARD)
    call = call_of("lengths-0-5")
    # No launch is made.
    assert offered.load()(call).out.shape == call.query.shape


def test_what_the_hook_loads_computes_gradients() -> None:
    (offered,) = torchyard_implementations(contract=BACKWARD)
    call = call_of("grouped-2")
    inputs = given_for(call)
    with emulated():
        result = offered.load()(call, *inputs)
    assert worst(call, inputs, result) <= 1.0


def test_derivatives_are_judged_by_what_metal_computes() -> None:
    slopes, wide = torch.ones(32), torch.ones(32, dtype=torch.float64)
    wanted = {"captured_grad": (True,), "grad": True}
    good = replace(_scored(lambda s, b, h, q, k: torch.lgamma(s) * slopes[h]), **wanted)
    assert supports_backward(good, _machine()).supported
    bad = replace(_scored(lambda s, b, h, q, k: (s * wide[h]).float()), **wanted)
    verdict = supports_backward(bad, _machine())
    assert not verdict.supported
    assert "float64, which Metal does not have" in verdict.text


def test_without_an_apple_gpu_the_kernel_says_so() -> None:
    (offered,) = torchyard_implementations(contract=FORWARD)
    with pytest.raises(ValueError, match="attention_forward: expected tensors on mps"):
        offered.load()(call_of("plain"))

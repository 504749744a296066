"""Verdicts depend on the request and the platform alone, for machines that nobody has here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from torchyard import Platform, ReasonCode, read_platform_file
from torchyard_attention.contract import AttentionRequest, MaskKind, ScoreKind
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call, request_of, traced_score_mod
from torchyard_triton import Vendor, implementations
from torchyard_triton._launch import Launch
from torchyard_triton.tuning import tiles_for

_REQUEST = AttentionRequest("cuda", "bfloat16", 1, 32, 8, 2048, 2048, 128, 128)


def _current() -> str:
    raise AssertionError("a verdict looked at the machine")


# Backend of Triton's -> the vendor on whose devices it runs.
_VENDORS = {
    "cuda": Vendor("cuda", "cuda", "cuda", _current),
    "hip": Vendor("rocm", "cuda", "hip", _current),
    "xpu": Vendor("xpu", "xpu", "xpu", _current),
}


def _machine(name: str) -> Platform:
    return read_platform_file(name).platform


def _judged(platform: Platform, backend: str = "cuda", **changes: Any) -> Any:
    vendor = _VENDORS[backend]
    (found,) = implementations("attention/1", vendor)
    assert found.name == f"{vendor.name}.triton"
    return found.supports(replace(_REQUEST, **changes), platform)


@pytest.mark.parametrize("name", ["a100", "rtx4090", "h100", "h200", "b200", "gb300", "rtx5090"])
def test_machines_with_a_known_architecture(name: str) -> None:
    verdict = _judged(_machine(name))
    assert verdict.supported, verdict.text
    assert "sm_" in verdict.text


@pytest.mark.parametrize("name", ["mi250x", "mi300x", "mi355x", "rx9070", "strix-halo"])
def test_amd(name: str) -> None:
    verdict = _judged(_machine(name), "hip")
    assert verdict.supported, verdict.text
    assert "gfx" in verdict.text


def test_of_two_vendors_with_one_device_type_each_refuses_the_others_machines() -> None:
    assert _judged(_machine("mi300x"), "cuda").code == ReasonCode.ISA
    refused = _judged(_machine("h100"), "hip")
    assert refused.code == ReasonCode.ISA
    assert "gfx942" in refused.text
    assert "sm_80" not in refused.text


@pytest.mark.parametrize(("name", "known"), [("arc-b580", True), ("arc-a770", False)])
def test_intel(name: str, known: bool) -> None:
    verdict = _judged(_machine(name), "xpu", device="xpu")
    assert verdict.supported == known
    assert known or verdict.code == ReasonCode.ISA


@pytest.mark.parametrize("name", ["cpu-avx512", "m3", "arc-b580"])
def test_machines_without_such_a_device(name: str) -> None:
    assert _judged(_machine(name)).code == ReasonCode.DEVICE


def test_each_fact_flipped_changes_the_verdict() -> None:
    machine = _machine("h100")
    (accelerator,) = machine.accelerators

    def having(**changes: Any) -> Platform:
        return replace(machine, accelerators=(replace(accelerator, **changes),))

    assert _judged(having(architecture="sm_70")).code == ReasonCode.ISA
    assert _judged(having(shared_memory=99 * 1024)).code == ReasonCode.MEMORY
    assert _judged(replace(machine, libraries=())).code == ReasonCode.DEPENDENCY
    old = replace(machine, libraries=(("triton", "3.5.1"),))
    assert _judged(old).code == ReasonCode.VERSION
    assert _judged(machine, device="cpu").code == ReasonCode.DEVICE
    assert _judged(machine, dtype="float64").code == ReasonCode.DTYPE
    assert _judged(machine, head_dim=257).code == ReasonCode.HEAD_DIM
    assert _judged(machine, value_dim=0).code == ReasonCode.HEAD_DIM
    assert _judged(machine, dropout=True).code == ReasonCode.DROPOUT
    assert _judged(machine, score=ScoreKind.GENERAL).code == ReasonCode.SCORE_MOD
    assert _judged(machine, score=ScoreKind.POINTWISE).code == ReasonCode.SCORE_MOD


def test_sizes_that_indices_do_not_reach_are_refused_by_name() -> None:
    h100, amd = _machine("h100"), _machine("mi300x")
    assert _judged(h100, kv_length=2**28, q_length=1).supported
    for field, size in (
        *(("q_length", 2**28 + 1), ("kv_length", 2**28 + 1)),
        *(("batch", 2**20 + 1), ("q_heads", 2**20 + 1)),
    ):
        verdict = _judged(h100, **{field: size})
        assert verdict.code == ReasonCode.SHAPE
        assert field in verdict.text
    wide = _judged(h100, block_size=(2**31, 2**31), mask=MaskKind.BLOCKS)
    assert wide.code == ReasonCode.SHAPE
    assert "block_size" in wide.text
    # An AMD launch has fewer programs.
    many = {"batch": 4096, "q_length": 4096}
    assert _judged(h100, **many).supported
    assert "tiles on gfx942" in _judged(amd, "hip", **many).text


def test_a_program_is_judged() -> None:
    def request(function: Any) -> dict[str, Any]:
        mod = traced_score_mod(function)
        return {"score": ScoreKind.POINTWISE, "score_text": mod.text}

    machine = _machine("h100")
    assert _judged(machine, **request(lambda s, b, h, q, k: torch.tanh(s))).supported
    refused = _judged(machine, **request(lambda s, b, h, q, k: torch.tanh(s.double()).float()))
    assert refused.code == ReasonCode.SCORE_MOD
    assert "tanh of float64" in refused.text


def test_other_contracts_are_not_implemented() -> None:
    assert list(implementations("graph_capture/1", _VENDORS["cuda"])) == []


def test_loaded_implementations_compute() -> None:
    vendor = replace(_VENDORS["cuda"], current=lambda: "sm_90")
    call = make_call(batch=1, q_heads=2, q_length=20, head_dim=16)
    (forward,), (backward,) = (
        implementations(contract, vendor) for contract in ("attention/1", "attention_backward/1")
    )
    assert request_of(call).device == call.query.device.type
    result = forward.load()(call)
    exact = reference_forward(call)
    torch.testing.assert_close(result.out, exact.out, rtol=1e-5, atol=1e-5)
    gradients = backward.load()(call, result.out, result.lse, torch.ones_like(result.out), None)
    # The weights of a row sum to 1, and so do the gradients of values that ones give.
    total = gradients.value.sum(dim=2)
    torch.testing.assert_close(total, torch.full_like(total, 20.0), rtol=1e-4, atol=1e-4)


def test_importing_imports_no_triton() -> None:
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import torchyard_triton, torchyard_triton.attention, torchyard_triton.tuning\n"
        "import torchyard_triton.architectures\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_each_pass_of_the_backward_has_the_tiles_that_it_was_compiled_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (found,) = implementations(
        "attention_backward/1", Vendor("cuda", "cuda", "cuda", lambda: "sm_90")
    )
    slopes = torch.ones(2)
    call = make_call(
        q_heads=2,
        q_length=256,
        kv_length=256,
        score_mod=lambda s, b, h, q, k: s * slopes[h],
        captured_grad=True,
    )
    result = reference_forward(call)
    started: dict[str, dict[str, Any]] = {}
    monkeypatch.setattr(
        Launch,
        "run",
        lambda self: started.setdefault(self.kernel.__name__, self.constants),
    )
    found.load()(call, result.out, result.lse, result.out, None)
    for name in ("query_gradient", "key_gradient", "captured_gradient"):
        kernel = f"attention_{name}"
        tiles = tiles_for("sm_90", kernel, call.query.shape[3])
        constants = started[kernel]
        assert (constants["ROWS"], constants["KEYS"]) == (tiles.rows, tiles.keys), name
        assert (constants["num_warps"], constants["num_stages"]) == (tiles.warps, tiles.stages)

"""The plugin as torchyard sees it, on a machine without a GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Final

import pytest
import torch

from plugins.cuda.tests.machines import NVIDIA, machine
from torchyard import ContractId, PluginState, Registry, registry
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionRequest, MaskKind
from torchyard_cuda._capability import capability
from torchyard_cuda.device import _described, torchyard_probe_device

_REQUEST: Final = AttentionRequest("cuda", "bfloat16", 1, 32, 8, 2048, 2048, 128, 128)


def test_torchyard_finds_the_plugin_healthy() -> None:
    (plugin,) = (plugin for plugin in registry().plugins if plugin.name == "cuda")
    assert plugin.state in {PluginState.DISCOVERED, PluginState.ACTIVE}, plugin


@pytest.mark.sweep
def test_importing_imports_neither_torch_nor_triton() -> None:
    _run("import sys; sys.modules['torch'] = None; import torchyard_cuda, torchyard_cuda.device")
    names = _run(
        "import sys; sys.modules['triton'] = None\n"
        "from torchyard_cuda.attention import torchyard_implementations\n"
        "print([item.name for item in torchyard_implementations(contract='attention/1')])\n"
    )
    assert "cuda.cudnn" in names


def _run(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_probe_agrees_with_torch_and_says_why_there_is_no_device() -> None:
    status = torchyard_probe_device(device="cuda")
    assert status.available == torch.cuda.is_available()
    assert status.count == torch.cuda.device_count()
    if not status.available:
        assert torch.__version__ in status.text
        assert status.hint


def test_a_device_is_described() -> None:
    facts = SimpleNamespace(
        name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30
    )
    assert _described(facts) == "NVIDIA H100, sm_90, 132 multiprocessors, 80.0 GiB"
    facts.clock_rate = 1_980_000
    assert _described(facts).endswith("clock 1980 MHz")


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [("sm_90", (9, 0)), ("sm_103", (10, 3)), ("sm_90a", (9, 0)), ("gfx942", None), ("", None)],
)
def test_capability(architecture: str, expected: tuple[int, int] | None) -> None:
    (accelerator,) = machine().accelerators
    assert capability(replace(accelerator, architecture=architecture)) == expected


@pytest.mark.parametrize("name", NVIDIA)
def test_the_list_is_the_architectures(name: str) -> None:
    platform = machine(name)
    found = Registry(platform=platform, environ={})
    hopper_or_later = platform.accelerators[0].architecture in {"sm_90", "sm_100", "sm_103"}
    for contract in (FORWARD, BACKWARD):
        order = found.order(ContractId.parse(contract), "cuda")
        # It is not installed there.
        first, second = [item for item in order if item != "cuda.fa4"][:2]
        pair = ("cuda.cudnn", "cuda.flash")
        assert (first, second) == (pair if hopper_or_later else pair[::-1])
        decision = found.decide(contract, replace(_REQUEST, grad=True, mask=MaskKind.CAUSAL))
        assert decision.name == first


@pytest.mark.parametrize("contract", [FORWARD, BACKWARD])
def test_kernels_in_triton_are_listed_where_they_were_measured_and_enlisted_elsewhere(
    contract: str,
) -> None:
    environ = {"TORCHYARD_ENLIST": "cuda.triton"}
    request = replace(
        _REQUEST, mask=MaskKind.BLOCKS, block_size=(128, 128), grad=contract == BACKWARD
    )
    measured = Registry(platform=machine("h200"), environ={}).decide(contract, request)
    # torch's own gradients take less time there, which the list has from the same measurement.
    assert measured.name == ("cuda.triton" if contract == FORWARD else "attention.flex")
    assert ("cuda.triton", "not listed") not in [(c.name, str(c.outcome)) for c in measured.trace]
    plain = Registry(platform=machine("a100"), environ={}).decide(contract, request)
    assert plain.name != "cuda.triton"
    assert ("cuda.triton", "not listed") in [(c.name, str(c.outcome)) for c in plain.trace]
    enlisted = Registry(platform=machine("a100"), environ=environ).decide(contract, request)
    assert enlisted.name == "cuda.triton"


def test_amds_machines_decide_as_without_the_plugin() -> None:
    found = Registry(platform=machine("mi300x"), environ={}).decide(FORWARD, _REQUEST)
    assert found.name == "attention.sdpa"
    assert all(c.verdict.code == "E_ISA" for c in found.trace if c.name in {"cuda.cudnn"})

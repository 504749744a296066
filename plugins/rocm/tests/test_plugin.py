"""The plugin as torchyard sees it, on a machine without a GPU."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from torchyard import Platform, PluginState, Registry, read_platform_file, registry
from torchyard_attention.contract import FORWARD, AttentionRequest, MaskKind
from torchyard_rocm.device import torchyard_probe_device

_MACHINES: Final = ("mi250x", "mi300x", "mi355x", "rx9070", "strix-halo")
_ENLISTED: Final = {"TORCHYARD_ENLIST": "rocm.triton"}
_REQUEST: Final = AttentionRequest(
    "cuda", "bfloat16", 1, 32, 8, 2048, 2048, 128, 128, mask=MaskKind.BLOCKS, block_size=(128, 128)
)
# Contract -> the module that defines it.
_CONTRACTS: Final = {
    "attention/1": "torchyard_attention.contract",
    "attention_backward/1": "torchyard_attention.contract",
    "linear/1": "torchyard_kernels.linear.contract",
    "pointwise/1": "torchyard_kernels.pointwise.contract",
    "recurrent/1": "torchyard_kernels.recurrent.contract",
    "recurrent_backward/1": "torchyard_kernels.recurrent.contract",
    "topk/1": "torchyard_kernels.topk.contract",
}


def _machine(name: str) -> Platform:
    return read_platform_file(name).platform


def _cases(contract: str) -> Iterator[Any]:
    definitions = importlib.import_module(_CONTRACTS[contract]).DEFINITIONS
    yield from definitions[contract].cases("cuda")


def test_torchyard_finds_the_plugin_healthy() -> None:
    (plugin,) = (plugin for plugin in registry().plugins if plugin.name == "rocm")
    assert plugin.state in {PluginState.DISCOVERED, PluginState.ACTIVE}, plugin


@pytest.mark.sweep
def test_importing_imports_neither_torch_nor_triton() -> None:
    _run(
        "import sys; sys.modules['torch'] = None\n"
        "import torchyard_rocm, torchyard_rocm.device, torchyard_rocm.checks"
    )
    names = _run(
        "import sys; sys.modules['triton'] = None\n"
        "from torchyard_rocm.attention import torchyard_implementations\n"
        "print([item.name for item in torchyard_implementations(contract='attention/1')])\n"
    )
    assert "rocm.triton" in names


def _run(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_probe_says_why_there_is_no_device() -> None:
    status = torchyard_probe_device(device="cuda")
    if not status.available:
        assert torch.__version__ in status.text
        assert status.hint


@pytest.mark.parametrize("contract", _CONTRACTS)
@pytest.mark.parametrize("machine", _MACHINES)
def test_kernels_compute_on_request_alone(machine: str, contract: str) -> None:
    platform = _machine(machine)
    plain = Registry(platform=platform, environ={})
    enlisted = Registry(platform=platform, environ=_ENLISTED)
    cases = list(_cases(contract))
    assert "rocm.triton" not in {plain.decide(contract, case).name for case in cases}
    assert "rocm.triton" in {enlisted.decide(contract, case).name for case in cases}


def test_without_triton_they_are_refused() -> None:
    platform = replace(_machine(_MACHINES[0]), libraries=())
    found = Registry(platform=platform, environ=_ENLISTED).decide(FORWARD, _REQUEST)
    assert found.name != "rocm.triton"
    (refused,) = (c for c in found.trace if c.name == "rocm.triton")
    assert refused.verdict is not None
    assert refused.verdict.code == "E_DEPENDENCY"


def test_another_architecture_is_refused() -> None:
    found = Registry(platform=_machine("h100"), environ=_ENLISTED).decide(FORWARD, _REQUEST)
    assert found.name != "rocm.triton"
    for candidate in found.trace:
        if candidate.name == "rocm.triton":
            assert candidate.verdict is not None
            assert candidate.verdict.code == "E_ISA"

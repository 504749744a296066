"""Execution graphs: which of torch's interfaces captures, by torch's version."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from plugins.cuda.tests.machines import NVIDIA, OTHERS, machine
from torchyard import ReasonCode, Registry
from torchyard_cuda.graphs import supports
from torchyard_kernels.graphs.contract import GRAPH_CAPTURE, GraphRequest


@pytest.mark.parametrize("name", NVIDIA)
def test_the_interface_of_all_devices_comes_first(name: str) -> None:
    found = Registry(platform=machine(name), environ={})
    assert found.decide(GRAPH_CAPTURE, GraphRequest("cuda")).name == "kernels.accelerator"


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.11.0+cu130", "cuda.graph"),
        ("2.12.0", "kernels.accelerator"),
        ("3.0.0a0", "kernels.accelerator"),
    ],
)
def test_before_torch_has_it_its_own_is_taken(version: str, name: str) -> None:
    found = Registry(platform=replace(machine(), torch=version), environ={})
    decision = found.decide(GRAPH_CAPTURE, GraphRequest("cuda"))
    assert decision.name == name
    if name == "cuda.graph":
        codes = {c.name: c.verdict.code for c in decision.trace}
        assert codes["kernels.accelerator"] == ReasonCode.VERSION


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_machine_is_supported(name: str) -> None:
    assert supports(GraphRequest("cuda"), machine(name)).code == ReasonCode.DEVICE
    assert supports(GraphRequest("cpu"), machine()).code == ReasonCode.DEVICE


def test_torch_has_what_is_called() -> None:
    assert callable(torch.cuda.CUDAGraph.replay)
    assert callable(torch.cuda.graph)
    assert callable(torch.cuda.synchronize)

"""Which machines' graphs do not hold an operator, by their facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from torchyard import Platform, ReasonCode, Registry, read_platform_file
from torchyard_kernels.graphs.contract import GRAPH_CAPTURE, GraphRequest, graph_faults

_FUSED = "aten::_scaled_dot_product_fused_attention_overrideable"
_FLASH = "aten::_scaled_dot_product_flash_attention"


def _machine(version: str, runtime: str) -> Platform:
    platform = read_platform_file("arc-b580").platform
    (accelerator,) = platform.accelerators
    return replace(platform, torch=version, accelerators=(replace(accelerator, runtime=runtime),))


@pytest.mark.parametrize(
    ("version", "runtime", "lost"),
    [
        ("2.13.0+xpu", "20250302", {_FUSED, _FLASH}),
        ("2.13.1+xpu", "20260000", {_FUSED}),
        ("2.12.0+xpu", "20250302", {_FLASH}),
        ("2.15.0+xpu", "20260000", set()),
        # Of a runtime that is not known the fault is taken to be there.
        ("2.15.0+xpu", "", {_FLASH}),
    ],
)
def test_facts_decide(version: str, runtime: str, lost: set[str]) -> None:
    platform = _machine(version, runtime)
    found = Registry(platform=platform, environ={})
    assert found.decide(GRAPH_CAPTURE, GraphRequest("xpu")).name == "kernels.accelerator"
    for operator in (_FUSED, _FLASH):
        decision = found.decide(GRAPH_CAPTURE, GraphRequest("xpu", frozenset({operator})))
        assert (decision.chosen is None) == (operator in lost)
        (verdict,) = (c.verdict for c in decision.trace if c.name == "kernels.accelerator")
        if operator in lost:
            assert verdict.code is ReasonCode.OTHER
            assert operator in verdict.text
            assert verdict.hint
    assert {fault.operator for fault in graph_faults("xpu", platform)} == lost


def test_torch_has_the_operators() -> None:
    faults = graph_faults("xpu", _machine("2.13.0+xpu", "20250302"))
    assert {fault.operator for fault in faults} == {_FUSED, _FLASH}
    for fault in faults:
        assert hasattr(torch.ops.aten, fault.operator.removeprefix("aten::"))
        assert fault.source.startswith("github.com/")


def test_other_devices_hold_them() -> None:
    platform = read_platform_file("h100").platform
    both = GraphRequest("cuda", frozenset({_FUSED, _FLASH}))
    assert Registry(platform=platform, environ={}).decide(GRAPH_CAPTURE, both).chosen is not None


def test_a_request_is_read_from_text() -> None:
    found = Registry(platform=_machine("2.13.0+xpu", "20260000"), environ={})
    definition = found.definition(found.contract("graph_capture"))
    request = definition.request({"device": "xpu", "operators": f"{_FUSED}, {_FLASH}"})
    assert request == GraphRequest("xpu", frozenset({_FUSED, _FLASH}))
    assert request.bucket() == f"xpu {_FLASH} {_FUSED}"
    with pytest.raises(ValueError, match="operators: expected names with a namespace"):
        definition.request({"operators": "mm"})

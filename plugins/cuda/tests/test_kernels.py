"""The kernels in Triton of other contracts: offered; but for quantised weights in no list."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from plugins.cuda.tests.machines import machine
from torchyard import Registry
from torchyard_kernels.linear.contract import LinearRequest

# Contract -> the module that defines it.
_CONTRACTS: Final = {
    "linear/1": "torchyard_kernels.linear.contract",
    "pointwise/1": "torchyard_kernels.pointwise.contract",
    "recurrent/1": "torchyard_kernels.recurrent.contract",
    "recurrent_backward/1": "torchyard_kernels.recurrent.contract",
    "topk/1": "torchyard_kernels.topk.contract",
}


def _cases(contract: str) -> Iterator[Any]:
    definitions = importlib.import_module(_CONTRACTS[contract]).DEFINITIONS
    yield from definitions[contract].cases("cuda")


@pytest.mark.parametrize("contract", _CONTRACTS)
def test_no_list_names_them(contract: str) -> None:
    found = Registry(platform=machine(), environ={})
    for request in _cases(contract):
        decision = found.decide(contract, request)
        assert decision.name.startswith("kernels.")


@pytest.mark.parametrize("weight", ["", "panels", "int8", "int4"])
@pytest.mark.parametrize("name", ["h100", "h200", "a100", "b200"])
def test_on_hopper_a_list_names_them_for_quantised_weights(name: str, weight: str) -> None:
    found = Registry(platform=machine(name), environ={})
    for rows in (1, 128, 4096):
        request = LinearRequest("cuda", "bfloat16", rows, 4096, 4096, weight=weight)
        quantised = name in ("h100", "h200") and weight in ("int8", "int4")
        expected = "cuda.quantised" if quantised else "kernels.torch"
        decision = found.decide("linear/1", request)
        assert decision.name == expected
        fused = replace(request, epilogue='["gelu","x"]')
        assert found.decide("linear/1", fused).name in ("cuda.quantised", "kernels.composed")


def test_without_triton_quantised_weights_are_unpacked() -> None:
    found = Registry(platform=machine("h200", without="triton"), environ={})
    request = LinearRequest("cuda", "bfloat16", 1, 4096, 4096, weight="int8")
    decision = found.decide("linear/1", request)
    assert decision.name == "kernels.torch"
    assert "cuda.quantised" in {candidate.name for candidate in decision.skipped()}


@pytest.mark.parametrize("contract", _CONTRACTS)
def test_enlisted_they_come_before_torchs(contract: str) -> None:
    found = Registry(platform=machine(), environ={"TORCHYARD_ENLIST": "cuda.triton"})
    names = {found.decide(contract, request).name for request in _cases(contract)}
    assert "cuda.triton" in names


@pytest.mark.parametrize("contract", _CONTRACTS)
def test_without_triton_they_are_refused(contract: str) -> None:
    environ = {"TORCHYARD_ENLIST": "cuda.triton"}
    found = Registry(platform=machine(without="triton"), environ=environ)
    assert {found.decide(contract, r).name for r in _cases(contract)} & {"cuda.triton"} == set()

"""The kernels in Triton of other contracts: offered, in no list, enlisted by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

import pytest

from plugins.cuda.tests.machines import machine
from torchyard import Registry

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

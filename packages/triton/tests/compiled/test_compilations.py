"""Implementations name their kernels for whoever compiles them without the device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torchyard_triton import Vendor, implementations
from torchyard_triton.compiled._compilers import missing_compiler
from torchyard_triton.compiled.specimens import specimens

_CONTRACTS = ("attention/1", "attention_backward/1", "linear/1", "pointwise/1", "topk/1")
_VENDOR = Vendor("forge", "cuda", "cuda", lambda: "sm_90")


def test_every_kernel_belongs_to_the_contract_that_it_computes() -> None:
    contracts = (*_CONTRACTS, "recurrent/1", "recurrent_backward/1")
    named = {name: {item.kernel for item in specimens("sm_90", name)} for name in contracts}
    assert "attention_varlen" in named["attention/1"]
    assert "attention_exact_key_gradient" in named["attention_backward/1"]
    assert named["recurrent_backward/1"] == {"recurrent_step_gradient"}
    every = [(item.contract, item.kernel, item.program) for item in specimens("sm_90")]
    assert len(set(every)) == len(every)
    assert {contract for contract, _, _ in every} == set(contracts)
    for contract in contracts:
        (offered,) = implementations(contract, _VENDOR)
        assert offered.compilations is not None
        found = list(offered.compilations())
        assert {item.architecture for item in found} == set(_VENDOR.architectures())
        mine = [item.name for item in found if item.architecture == "sm_90"]
        assert sorted(mine) == sorted(f"{k}/{p}" for c, k, p in every if c == contract)


def test_code_that_is_not_as_it_must_be_raises() -> None:
    script = """
from unittest import mock
from torchyard_triton import Vendor
from torchyard_triton.compiled import FaultyCodeError, _inventory, compilations

def kernel(name):
    vendor = Vendor("forge", "cuda", "cuda", lambda: "sm_90")
    found = compilations("topk/1", vendor)
    return next(item for item in found if (item.architecture, item.name) == ("sm_90", name))

figures = kernel("topk_sort/uint8").run()
assert figures["registers"] > 0 and figures["shared_memory"] > 0 and "kernel" not in figures
with mock.patch.object(_inventory, "budget_of", lambda *_: -1):
    try:
        kernel("topk_sort/uint8").run()
    except FaultyCodeError as error:
        assert "sm_90 topk_sort uint8: spills 0, its budget is -1" in str(error), error
    else:
        raise AssertionError("expected FaultyCodeError")
"""
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", script], env=environ, check=True)


def test_why_nothing_compiles_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    missing_compiler.cache_clear()
    assert "has no compiler for acme" in missing_compiler("acme")
    # The tests of this package interpret.
    assert "TRITON_INTERPRET is set" in missing_compiler("cuda")
    monkeypatch.setattr("torchyard_triton.compiled._compilers.find_spec", lambda name: None)
    missing_compiler.cache_clear()
    assert missing_compiler("cuda") == "triton is not installed"
    missing_compiler.cache_clear()

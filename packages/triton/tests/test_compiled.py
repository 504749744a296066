"""Kernels compile for architectures that are not here; faults of compiled code are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from torchyard_triton import Vendor, implementations
from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.attention import Tiles
from torchyard_triton.compiled import (
    BUDGETS,
    Figures,
    FiguresCache,
    amd_figures,
    amd_scalar_registers,
    digest,
    faults,
    nvidia_figures,
    unit_waves,
)
from torchyard_triton.compiled._compilers import missing_compiler
from torchyard_triton.compiled.specimens import specimens
from torchyard_triton.tuning import tiles_for, tiles_of

_HOPPER = ARCHITECTURES["sm_90"]
_GOOD = Figures("sm_90", "attention_forward", "causal", 255, 0, 98304, "wgmma.mma_async", 1.0)
_LOG = """ptxas info    : Compiling entry function 'attention_forward' for 'sm_90a'
ptxas info    : Function properties for attention_forward
    16 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size
"""


def test_a_good_kernel_has_no_fault() -> None:
    assert faults(_GOOD, _HOPPER) == []


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (replace(_GOOD, shared_memory=232449), "bytes of shared memory"),
        (replace(_GOOD, spills=4), "spills 4, its budget is 0"),
        # Triton compiled a branch around a product to nothing once, without an error.
        (replace(_GOOD, matrix=""), "expected wgmma.mma_async in its code, got none"),
        (replace(_GOOD, matrix="mma.sync"), "expected wgmma.mma_async in its code, got mma.sync"),
    ],
)
def test_each_fault_is_found(broken: Figures, text: str) -> None:
    (found,) = faults(broken, _HOPPER)
    assert text in found
    assert found.startswith("sm_90 attention_forward causal")


def test_small_tiles_have_the_small_instruction() -> None:
    assert faults(replace(_GOOD, matrix="mma.sync"), _HOPPER, small=True) == []
    (found,) = faults(replace(_GOOD, matrix=""), _HOPPER, small=True)
    assert "expected mma.sync or wgmma.mma_async" in found


def test_figures_are_stored(tmp_path: Path) -> None:
    cache = FiguresCache(tmp_path / "figures")
    assert cache.read("a") is None
    cache.write("a", _GOOD)
    assert cache.read("a") == _GOOD
    assert FiguresCache(None).read("a") is None
    assert digest("one", "two") != digest("onet", "wo")


def test_nvidia_figures() -> None:
    assert nvidia_figures(_LOG, "wgmma.mma_async.sync", _HOPPER) == (255, 24, "wgmma.mma_async")
    assert nvidia_figures(_LOG, "mma.sync.aligned", _HOPPER)[2] == "mma.sync"
    with pytest.raises(ValueError, match="expected what ptxas -v prints"):
        nvidia_figures("", "", _HOPPER)


def test_amd_figures() -> None:
    code = "v_mfma_f32_32x32x8\n    .vgpr_count:     250\n    .vgpr_spill_count: 3\n"
    assert amd_figures(code, ARCHITECTURES["gfx942"]) == (250, 3, "v_mfma")
    assert amd_figures(code, ARCHITECTURES["gfx1100"])[2] == ""
    with pytest.raises(ValueError, match="expected assembly"):
        amd_figures("", ARCHITECTURES["gfx942"])
    assert amd_scalar_registers("    .sgpr_count:     34\n") == 34
    with pytest.raises(ValueError, match="expected assembly"):
        amd_scalar_registers("")


@pytest.mark.parametrize(
    ("architecture", "occupancy", "shared_memory", "warps", "waves"),
    [
        # By registers: 3 waves on each of four SIMDs are one program of 8, or three of 4.
        ("gfx942", 3, 0, 8, 8),
        ("gfx942", 3, 0, 4, 12),
        ("gfx942", 8, 0, 4, 32),
        # By shared memory: 64 KiB of a compute unit, 160 on gfx950, 128 of a work-group processor.
        ("gfx942", 8, 24 << 10, 4, 8),
        ("gfx950", 8, 24 << 10, 4, 24),
        ("gfx1100", 16, 24 << 10, 4, 20),
        ("gfx1100", 16, 0, 4, 64),
        # Nothing that fits: more registers than a unit has.
        ("gfx942", 1, 0, 8, 0),
        ("sm_90", 8, 0, 4, 0),
    ],
)
def test_waves_that_a_unit_holds(
    architecture: str, occupancy: int, shared_memory: int, warps: int, waves: int
) -> None:
    code = f"; ScratchSize: 0\n; Occupancy: {occupancy}\n; WaveLimiterHint : 0\n"
    assert unit_waves(code, ARCHITECTURES[architecture], shared_memory, warps) == waves


def test_waves_need_what_llvm_writes() -> None:
    with pytest.raises(ValueError, match="expected assembly with '; Occupancy:'"):
        unit_waves("", ARCHITECTURES["gfx942"], 0, 4)


def test_budgets_have_reasons() -> None:
    assert all(budget.reason and budget.spills > 0 for budget in BUDGETS)
    assert all(budget.architecture in ARCHITECTURES for budget in BUDGETS)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiles_are_powers_of_two(architecture: str) -> None:
    kernels = tiles_of(architecture)
    assert {"attention_forward", "attention_key_gradient"} <= set(kernels)
    for kernel, tiles in kernels.items():
        for size in (64, 128, 256):
            found = tiles_for(architecture, kernel, size)
            assert isinstance(tiles, Tiles)
            for value in (found.rows, found.keys):
                assert value >= 16
                assert value & (value - 1) == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("head_dim", "itemsize"), [(64, 4), (128, 4), (256, 2), (256, 4)])
def test_tiles_of_longer_rows_hold_no_more_bytes(
    architecture: str, head_dim: int, itemsize: int
) -> None:
    # The table's are for 128 elements of two bytes; tiles of 16 are the least there are.
    for kernel, tiles in tiles_of(architecture).items():
        found = tiles_for(architecture, kernel, head_dim, itemsize)
        for length, most in ((found.rows, tiles.rows), (found.keys, tiles.keys)):
            assert length == 16 or length * head_dim * itemsize <= most * 256


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
from torchyard_triton.compiled import FaultyCodeError, _compilations as module

def kernel(name):
    vendor = Vendor("forge", "cuda", "cuda", lambda: "sm_90")
    found = module.compilations("topk/1", vendor)
    return next(item for item in found if (item.architecture, item.name) == ("sm_90", name))

figures = kernel("topk_sort/uint8").run()
assert figures["registers"] > 0 and figures["shared_memory"] > 0 and "kernel" not in figures
with mock.patch.object(module, "budget_of", lambda *_: -1):
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


@pytest.mark.sweep
def test_kernels_compile(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    cache = tmp_path / "cache"
    words = ("sm_90", "gfx942", "--programs=alibi", "--kernels=attention_forward")
    command = [sys.executable, "-m", "torchyard_triton.compiled", *words]
    found = []
    for _ in range(2):
        subprocess.run([*command, f"--out={out}", f"--cache={cache}"], env=environ, check=True)
        found.append(json.loads(out.read_text(encoding="utf-8")))
    # The second time nothing is compiled, and the seconds are those of the first.
    assert found[0] == found[1]
    assert [row["architecture"] for row in found[0]] == ["sm_90", "gfx942"]
    assert all(row["matrix"] for row in found[0])
    for figure in ("waves", "scalar_registers"):
        assert [row[figure] > 0 for row in found[0]] == [False, True]

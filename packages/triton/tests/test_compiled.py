"""Kernels compile for architectures that are not here; faults of compiled code are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.attention import Tiles
from torchyard_triton.compiled import BUDGETS, Figures, amd_figures, faults, nvidia_figures
from torchyard_triton.tuning import tiles_for, tiles_of

_HOPPER = ARCHITECTURES["sm_90"]
_GOOD = Figures("sm_90", "attention_forward", "causal", 255, 0, 98304, True, 1.0)
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
        (replace(_GOOD, matrix=False), "expected wgmma.mma_async"),
    ],
)
def test_each_fault_is_found(broken: Figures, text: str) -> None:
    (found,) = faults(broken, _HOPPER)
    assert text in found
    assert found.startswith("sm_90 attention_forward causal")


def test_nvidia_figures() -> None:
    assert nvidia_figures(_LOG, "wgmma.mma_async.sync", _HOPPER) == (255, 24, True)
    assert nvidia_figures(_LOG, "mma.sync.aligned", _HOPPER)[2] is False
    with pytest.raises(ValueError, match="expected what ptxas -v prints"):
        nvidia_figures("", "", _HOPPER)


def test_amd_figures() -> None:
    code = "v_mfma_f32_32x32x8\n    .vgpr_count:     250\n    .vgpr_spill_count: 3\n"
    assert amd_figures(code, ARCHITECTURES["gfx942"]) == (250, 3, True)
    assert amd_figures(code, ARCHITECTURES["gfx1100"])[2] is False
    with pytest.raises(ValueError, match="expected assembly"):
        amd_figures("", ARCHITECTURES["gfx942"])


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


def test_kernels_compile(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    words = ("sm_90", "gfx942", "--programs=alibi", "--kernels=attention_forward", f"--out={out}")
    subprocess.run(
        [sys.executable, "-m", "torchyard_triton.compiled", *words], env=environ, check=True
    )
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["architecture"] for row in rows] == ["sm_90", "gfx942"]
    assert all(row["matrix"] for row in rows)

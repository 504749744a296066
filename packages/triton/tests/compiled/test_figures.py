"""Faults of compiled code are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.attention import Tiles
from torchyard_triton.attention._launch import padded
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
from torchyard_triton.compiled.specimens import specimens
from torchyard_triton.tuning import heads_of, table_tiles, tiles_for, tiles_of

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


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiles_hold_no_more_bytes_than_those_that_were_compiled(
    architecture: str, itemsize: int
) -> None:
    # The table's are for 128 elements of two bytes; tiles of 16 are the least there are.
    own = heads_of(architecture) if itemsize == 2 else {}
    compiled = {(one.kernel, one.program) for one in specimens(architecture)}
    for head_dim in range(8, 257, 8):
        size = padded(head_dim)
        for kernel, tiles in tiles_of(architecture).items():
            found = table_tiles(architecture, kernel, head_dim, itemsize)
            if kernel in own.get(size, {}):
                assert found == own[size][kernel]
                assert (kernel, f"alibi-d{size}") in compiled
                continue
            for length, most in ((found.rows, tiles.rows), (found.keys, tiles.keys)):
                assert length == 16 or length * size * itemsize <= most * 256


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_kernel_has_a_name(architecture: str) -> None:
    names = [(one.kernel, one.program) for one in specimens(architecture)]
    assert len(names) == len(set(names))

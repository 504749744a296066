"""What the command has written becomes the tables of the documentation."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from packages.triton.tests.tables.compiled import certified, tables
from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.compiled import Figures

_CERTIFICATES = Path(__file__).parents[4] / "docs/certificates"
_ROW = Figures("sm_90", "attention_forward", "causal", 200, 0, 98304, "wgmma.mma_async", 61.0)


def test_a_cell_is_the_most_of_any_program() -> None:
    rows = [
        *(_ROW, replace(_ROW, program="bias", registers=255, spills=16, shared_memory=1024)),
        replace(_ROW, program="alibi-d64", registers=128),
        replace(_ROW, architecture="gfx942", kernel="topk_select", program="int64", matrix=""),
    ]
    report = {
        "kernels": [asdict(row) for row in rows],
        "faults": [],
        "seconds": {"sm_90": 183.0, "gfx942": 1.0},
        "total": 184.0,
    }
    lines = list(tables(report))
    titles = "| architecture | matrix instruction |"
    attention = ["| sm_90 | wgmma.mma_async | 255 / 16 / 98,304 |", ""]
    assert lines[:2] == ["Attention:", ""]
    assert lines[2:6] == [f"{titles} forward |", "| --- | --- | --- |", *attention]
    assert lines[lines.index("alibi-d64:") + 4] == "| sm_90 | wgmma.mma_async | 128 / 0 / 98,304 |"
    assert lines[lines.index("Other ops:") + 2] == f"{titles} topk select |"
    assert "| sm_90 | 3 | 183 |" in lines
    assert lines[-1] == "4 kernels, 0 faults, 3 minutes of one core."


def test_certificates_hold_what_the_command_writes() -> None:
    report = certified(sorted(_CERTIFICATES.glob("*-compiled.tgz")))
    rows = [Figures(**row) for row in report["kernels"]]
    assert not report["faults"]
    # NVIDIA's and AMD's, each with attention and other ops.
    names = {name for name, item in ARCHITECTURES.items() if item.backend in ("cuda", "hip")}
    assert set(report["seconds"]) == names
    for name in names:
        kernels = {row.kernel for row in rows if row.architecture == name}
        assert {"attention_key_gradient", "linear_product", "topk_select"} <= kernels
    assert any("Attention:" in line for line in tables(report))

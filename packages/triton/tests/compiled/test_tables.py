"""What the command has written becomes the tables of the documentation."""

from __future__ import annotations

from dataclasses import asdict, replace

from packages.triton.tests.tables.compiled import tables
from torchyard_triton.compiled import Figures

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

"""Kernels compile for architectures that are not here, each in a process that may end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packages.triton.tests.compiled.stand_in_compilers import Absent, crashing
from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.compiled.__main__ import main
from torchyard_triton.compiled._budgets import budget_of
from torchyard_triton.compiled._workers import Job, compiled_apart


def test_an_end_of_the_compiler_is_a_fault_of_one_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.json"
    kernels = "attention_forward,attention_delta,attention_merge,attention_query_gradient"
    words = ["sm_90", "--programs=none", f"--kernels={kernels}", f"--out={out}"]
    assert main(words, crashing) == 1
    lines = capsys.readouterr().out.splitlines()
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["faults"] == [
        "sm_90 attention_merge none: ValueError: out of registers\nin the last of 3 passes",
        "sm_90 attention_delta none: ended by SIGABRT",
    ]
    assert "sm_90    attention_merge              none       ValueError: out of registers" in lines
    assert "sm_90    attention_delta              none       ended by SIGABRT" in lines
    # The kernel before it, and the one after it.
    kept = [row["kernel"] for row in report["kernels"]]
    assert kept == ["attention_forward", "attention_query_gradient"]
    assert (report["seconds"], report["total"]) == ({"sm_90": 3.0}, 3.0)
    assert "total       3.0 s" in lines


def test_a_process_that_does_not_start_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="got one that ended with exit status 3"):
        next(compiled_apart([Job("sm_90", "attention_forward", "none")], Absent()))


def _compiled(folder: Path) -> dict[str, Any]:
    """Return what the command reports of two kernels, whose figures it keeps in a folder."""
    out = folder / "rows.json"
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    words = ("sm_90", "gfx942", "--programs=alibi", "--kernels=attention_forward")
    command = [sys.executable, "-m", "torchyard_triton.compiled", *words]
    options = (f"--out={out}", f"--cache={folder / 'cache'}")
    subprocess.run([*command, *options], env=environ, check=True, stdout=subprocess.DEVNULL)
    report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return report


def test_kernels_compile(tmp_path: Path) -> None:
    report = _compiled(tmp_path)
    rows = report["kernels"]
    assert [row["architecture"] for row in rows] == ["sm_90", "gfx942"]
    assert report["faults"] == []
    for row in rows:
        architecture = ARCHITECTURES[row["architecture"]]
        assert row["matrix"] == architecture.matrix_instruction
        assert row["spills"] <= budget_of(architecture.name, report["triton"], row["kernel"])
        assert 0 < row["shared_memory"] <= architecture.shared_memory
    for figure in ("waves", "scalar_registers"):
        assert [row[figure] > 0 for row in rows] == [False, True]


@pytest.mark.sweep
def test_what_was_compiled_is_not_compiled_again(tmp_path: Path) -> None:
    first = _compiled(tmp_path)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").iterdir()}
    # The seconds are those of the first time.
    assert _compiled(tmp_path) == first
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").iterdir()} == kept

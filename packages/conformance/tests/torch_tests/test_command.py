"""``torchyard certify torch-tests`` runs a folder of tests on a device, and counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from torchyard_conformance._cli import command

_TESTS = """
import unittest
import torch
import torch_openreg

class TestThings(unittest.TestCase):
    def test_sum(self):
        x = torch.ones(3, device="openreg:1")
        assert x.device.type == "openreg"
        assert float(x.sum()) == 3

    def test_two_devices(self):
        assert torch.accelerator.device_count() == 1000, "too few"

    @unittest.skip("not here")
    def test_skipped(self):
        pass
"""
_FAILS = "test_things.py::TestThings::test_two_devices"


def _run(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    given = ["torch-tests", "simulated", str(folder), "--json", *words]
    result = CliRunner().invoke(command, given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.stdout)


def _write(folder: Path, **files: str) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.mark.sweep
def test_each_test_has_its_outcome(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    _write(folder, test_things=_TESTS, test_own="from torch_openreg import x\n", helper="not read(")
    code, found = _run(folder)
    assert code == 1
    assert found["counts"] == {"passed": 1, "failed": 1, "skipped": 1, "not run": 1}
    rows = {row["test"]: row for row in found["tests"]}
    assert "too few" in rows[_FAILS]["text"]
    assert rows["test_own.py"]["outcome"] == "not run"
    reasons = tmp_path / "reasons.toml"
    reasons.write_text(f'[reasons]\n"{_FAILS}" = "four devices"\n"test_own.py" = "its own"\n')
    code, found = _run(folder, "--reasons", str(reasons))
    assert (code, found["stale"]) == (0, [])
    assert found["counts"]["failed, with a reason"] == 1
    reasons.write_text(reasons.read_text() + '"test_things.py::TestThings::test_sum" = "old"\n')
    code, found = _run(folder, "--reasons", str(reasons))
    assert (code, found["stale"]) == (1, ["test_things.py::TestThings::test_sum"])


def test_a_file_that_ends_its_process_is_one_failure(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    _write(folder, test_dies="import os\nos._exit(7)\n")
    code, found = _run(folder)
    assert code == 1
    (row,) = found["tests"]
    assert (row["test"], row["outcome"]) == ("test_dies.py", "failed")
    assert "status 7" in row["text"]


def test_a_file_that_cannot_be_imported_is_one_failure(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    _write(folder, test_newer="from torch import of_a_newer_torch\n")
    _, found = _run(folder)
    (row,) = found["tests"]
    assert (row["test"], row["outcome"]) == ("test_newer.py", "failed")
    assert "of_a_newer_torch" in row["text"]


def test_a_folder_without_tests_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["torch-tests", "simulated", str(tmp_path)])
    assert result.exit_code == 2
    assert "expected test_*.py of a checkout of PyTorch" in result.output

"""Kernels that are compiled ahead of time: how each ends, and what a certificate of them proves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packages.conformance.tests.evidence.reports import certified_report
from packages.core.tests.distribution import Distribution
from torchyard import EvidenceLevel
from torchyard_conformance import LawResult, Status
from torchyard_conformance._evidence._levels import level_of, proven
from torchyard_conformance._evidence._matrix import matrix
from torchyard_conformance._evidence._verify import Authorship, Verified

_LAW = "compilation.kernels-compile"
_MANIFEST = """
    schema = 1
    name = "forge"
    summary = "Kernels for a device that is nowhere"

    [requires]
    torchyard = ">=0.1.0.dev0"

    [[implements]]
    contract = "topk/1"
    module = "torchyard_forge.kernels"
    devices = ["forge"]
"""
_KERNELS = """
    from torchyard import Compilation, Implementation, Verdict, hookimpl


    def faulty():
        raise ValueError("spills 8, its budget is 0")


    KERNELS = [
        Compilation("f1", "select/uint8", lambda: "", lambda: {"registers": 32.0}),
        Compilation("f1", "sort/uint8", lambda: "", faulty),
        Compilation("f2", "select/uint8", lambda: "no compiler for f2", faulty),
    ]


    @hookimpl
    def torchyard_implementations(contract):
        offered = Implementation(
            contract,
            "forge.kernels",
            lambda request, platform: Verdict.yes(),
            lambda: None,
            compilations=lambda: KERNELS,
        )
        return [offered]
"""


def _certified(folder: Path, kernels: str) -> dict[str, Any]:
    files = {"torchyard_forge/torchyard.toml": _MANIFEST, "torchyard_forge/kernels.py": kernels}
    Distribution("torchyard-forge", "forge", "torchyard_forge", files).install(folder)
    words = ["certify", "forge", "--profile", "compiled", "--case", _LAW, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "torchyard", *words],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return {row["case"]: row for row in json.loads(done.stdout)["results"]}


def test_each_kernel_ends_by_itself(tmp_path: Path) -> None:
    found = _certified(tmp_path, _KERNELS)
    where = "forge.kernels@forge/topk"
    assert {name: row["status"] for name, row in found.items()} == {
        f"{where}/f1/select/uint8": "pass",
        f"{where}/f1/sort/uint8": "fail",
        f"{where}/f2/select/uint8": "unverified",
    }
    assert found[f"{where}/f1/select/uint8"]["figures"] == {"registers": 32.0}
    assert "spills 8, its budget is 0" in found[f"{where}/f1/sort/uint8"]["text"]
    assert found[f"{where}/f2/select/uint8"]["text"] == "no compiler for f2"


def test_a_compiler_that_ends_the_process_fails_its_kernel_alone(tmp_path: Path) -> None:
    crash = _KERNELS.replace('raise ValueError("spills 8, its budget is 0")', "os.abort()")
    found = _certified(tmp_path, f"    import os\n{crash}")
    statuses = [row["status"] for _, row in sorted(found.items())]
    assert statuses == ["pass", "fail", "unverified"]
    assert "SIGABRT" in found["forge.kernels@forge/topk/f1/sort/uint8"]["text"]


def test_a_name_twice_and_no_kernel_at_all_are_no_pass(tmp_path: Path) -> None:
    twice = _KERNELS.replace('"sort/uint8"', '"select/uint8"')
    (row,) = _certified(tmp_path / "twice", twice).values()
    assert row["status"] == "fail"
    assert "expected each name once, got 'select/uint8'" in row["text"]
    none = _KERNELS.replace("lambda: KERNELS", "lambda: []")
    (row,) = _certified(tmp_path / "none", none).values()
    assert row["status"] == "not-supported"


def _verified(*architectures: str, status: Status = Status.PASS) -> Verified:
    results = tuple(
        LawResult(_LAW, f"forge.triton@forge/topk/{name}/select/uint8", status)
        for name in architectures
    )
    found = certified_report("compiled", mustpass=(_LAW,), devices=("forge",), results=results)
    return Verified(found, "0" * 64, Authorship.UNSIGNED)


def test_what_compiled_proves_that_it_compiles() -> None:
    verified = _verified("f1", "f2")
    assert level_of(verified.report) is EvidenceLevel.COMPILES
    (row,) = proven({"docs/forge.tgz": verified}, ())
    assert (row.feature, row.device, row.level) == ("kernels.topk", "forge", EvidenceLevel.COMPILES)
    assert row.figures == "2 kernels, compiled for f1, f2"


def test_the_matrix_calls_it_compiled_and_not_certified() -> None:
    page = matrix({"docs/forge.tgz": _verified("f1")}, ())
    assert "| `forge` | compiles: [compiled 1.0](docs/forge.tgz) |" in page
    assert "certified:" not in page
    assert "yard on forge, compiled" in page


@pytest.mark.parametrize("status", [Status.FAIL, Status.UNVERIFIED, Status.NOT_SUPPORTED])
def test_what_did_not_compile_proves_nothing(status: Status) -> None:
    assert not proven({"docs/forge.tgz": _verified("f1", status=status)}, ())

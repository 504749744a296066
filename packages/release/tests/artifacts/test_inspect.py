"""Inspection passes what is as declared, and catches each thing that can be wrong by its name."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from packages.release.tests import foreign
from packages.release.tests.artifacts.mutants import MUTANTS, Mutant, Subject
from torchyard_release._artifacts._findings import Fault, Finding
from torchyard_release._artifacts._inspect import inspect_files
from torchyard_release._declaration._parse import parse_train
from torchyard_release._records._candidate import Artifact, sha256
from torchyard_release._records._evidence import read_evidence
from torchyard_release._repository._workspace import Workspace


@pytest.fixture
def subject(built: Path, tmp_path: Path) -> Subject:
    """Return a copy of the clean set, and what it was built from."""
    dist = Path(shutil.copytree(built / ".train/1.4.0/rc1/dist", tmp_path / "dist"))

    def shown(path: str) -> str:
        return foreign.git(built, "show", f"v1.4.0-rc1:{path}")

    train = parse_train(shown("train.toml"))
    projects = {
        package.name: tomllib.loads(shown(f"{package.folder}/pyproject.toml"))["project"]
        for package in train.packages
    }
    return Subject(dist, train, copy.deepcopy(projects))


def _inspected(subject: Subject, built: Path, *, rebuilt: bool) -> tuple[Finding, ...]:
    files = {path.name: path for path in subject.dist.iterdir()}
    _, candidate = Workspace.find(built).release.latest()
    if rebuilt:
        rows = tuple(
            Artifact(name, "", "", "", sha256(path), path.stat().st_size)
            for name, path in files.items()
        )
        candidate = dataclasses.replace(candidate, artifacts=rows)
    packages = subject.train.packages
    return inspect_files(files, subject.train, packages, subject.projects, candidate)


def test_the_clean_set_passes(subject: Subject, built: Path) -> None:
    assert _inspected(subject, built, rebuilt=False) == ()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_by_name(subject: Subject, built: Path, mutant: Mutant) -> None:
    mutant.change(subject)
    findings = _inspected(subject, built, rebuilt=mutant.rebuilt)
    caught = [item for item in findings if item.fault is mutant.fault]
    assert mutant.file in {item.file for item in caught}, [item.line for item in findings]
    assert all(item.text and item.remedy for item in findings)


def test_every_fault_has_a_mutant() -> None:
    assert {mutant.fault for mutant in MUTANTS} == set(Fault)


def test_a_wheel_built_right_but_of_other_bytes_is_no_fault(subject: Subject, built: Path) -> None:
    # Mutants are judged by what is wrong with them, not by being rewritten.
    subject.wheel("orchard-1.4.0-py3-none-any.whl", lambda members: None)
    subject.sdist("orchard-1.4.0.tar.gz", lambda members: None)
    assert _inspected(subject, built, rebuilt=True) == ()


@pytest.fixture
def orchard(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the monorepo whose candidate is built."""
    return Path(shutil.copytree(built, tmp_path / "orchard", symlinks=True))


def _outcomes(root: Path, number: int = 1) -> dict[str, str]:
    folder = Workspace.find(root).release.candidate(number) / "evidence"
    return {item.gate: str(item.outcome) for item in read_evidence(folder).values()}


def test_a_candidate_that_is_as_declared_passes_and_gets_a_bill(orchard: Path) -> None:
    before = json.loads(foreign.release(orchard, "status", "--json").stdout)
    assert before["next"] == "torchyard release inspect"
    result = foreign.release(orchard, "inspect")
    assert result.exit_code == 0, result.output
    assert "rc1: 6 artifacts are as declared" in result.output
    status = json.loads(foreign.release(orchard, "status", "--json").stdout)
    assert status["candidates"][0]["gates"] == ["api", "build", "check", "inspect", "sbom"]
    assert status["ready"]
    assert status["next"] == "torchyard release approve --key KEY.pem"
    assert _outcomes(orchard) == dict.fromkeys(["api", "build", "check", "inspect", "sbom"], "pass")
    bill = json.loads((orchard / ".train/1.4.0/rc1/sbom/orchard-1.4.0.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    _, candidate = Workspace.find(orchard).release.latest()
    listed = {
        file["name"]: file["hashes"][0]["content"]
        for component in bill["components"]
        for file in component.get("components", [])
    }
    assert listed == candidate.sums
    needs = {row["ref"]: row.get("dependsOn", []) for row in bill["dependencies"]}
    assert needs["pkg:pypi/orchard-shop@1.4.0"] == [
        "pkg:pypi/orchard-press@1.4.0",
        "pkg:pypi/orchard@1.4.0",
    ]


def test_a_bill_is_cyclonedx_and_the_same_every_time(orchard: Path) -> None:
    path = orchard / ".train/1.4.0/rc1/sbom/orchard-1.4.0.cdx.json"
    texts = []
    for _ in range(2):
        assert foreign.release(orchard, "inspect").exit_code == 0
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    strict = JsonStrictValidator(SchemaVersion.V1_6)
    assert strict.validate_str(texts[0]) is None


def test_a_candidate_with_a_fault_is_refused_and_says_so_for_good(orchard: Path) -> None:
    (orchard / ".train/1.4.0/rc1/dist/orchard_shop-1.4.0-py3-none-any.whl").unlink()
    result = foreign.release(orchard, "inspect")
    assert result.exit_code == 3
    assert "orchard_shop-1.4.0-py3-none-any.whl: missing-artifact: orchard-shop must" in (
        result.output
    )
    outcomes = _outcomes(orchard)
    assert (outcomes["inspect"], outcomes["sbom"], outcomes["api"]) == ("fail", "fail", "pass")
    runs = json.loads(foreign.release(orchard, "history", "--json").stdout)["runs"]
    assert runs[-1]["outcome"] == "refused"


def test_the_api_of_a_candidate_is_compared_with_the_last_release(
    tmp_path: Path,
) -> None:
    root = foreign.make(tmp_path / "orchard", agreed=True, only="orchard")
    assert foreign.release(root, "cut").exit_code == 0
    foreign.git(root, "tag", "v1.4.0", "v1.4.0-rc1")
    assert foreign.release(root, "bump", "1.5.0.dev0").exit_code == 0
    assert 'previous = "v1.4.0"' in (root / "train.toml").read_text()
    path = root / "packages/orchard/src/orchard/__init__.py"
    path.write_text(path.read_text().replace("kind: str, count: int = 1", "kind: str"))
    foreign.git(root, "commit", "--quiet", "--all", "--message=Break")
    assert foreign.release(root, "cut").exit_code == 0
    assert foreign.release(root, "build", "--no-isolation").exit_code == 0
    result = foreign.release(root, "inspect")
    assert result.exit_code == 3
    assert "compared with: v1.4.0" in result.output
    assert "orchard.grow: parameter was removed" in result.output
    assert "1.5.0 after 1.4.0 may not break; release it in a later series" in result.output
    folder = Workspace.find(root).release.candidate(1) / "evidence"
    outcomes = {item.gate: str(item.outcome) for item in read_evidence(folder).values()}
    assert (outcomes["inspect"], outcomes["api"]) == ("pass", "fail")


def test_nothing_built_is_nothing_to_inspect(tmp_path: Path) -> None:
    root = foreign.make(tmp_path / "orchard", only="orchard")
    result = foreign.release(root, "inspect")
    assert result.exit_code == 1
    assert "no candidate has been built\ndo: cut the train and build" in result.output


_DYING = """
import os, signal, sys
from torchyard_release._records import _journal
from torchyard_release._cli import command
write, count = _journal._write, 0
def dying(descriptor, line):
    global count
    count += 1
    if count == int(sys.argv[2]):
        os.write(descriptor, line[: len(line) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    write(descriptor, line)
_journal._write = dying
command(["--root", sys.argv[1], "inspect"])
"""


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(1, 6))
def test_killed_in_any_line_of_the_journal_inspecting_again_ends_the_same(
    orchard: Path, number: int
) -> None:
    # command, evidence three times, ended
    before = len(Workspace.find(orchard).release.entries())
    words = [sys.executable, "-c", _DYING, str(orchard), str(number)]
    killed = subprocess.run(words, capture_output=True, env={**os.environ})
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(Workspace.find(orchard).release.entries()) == before + number - 1
    assert foreign.release(orchard, "inspect").exit_code == 0
    assert set(_outcomes(orchard).values()) == {"pass"}
    assert not (orchard / ".train/1.4.0/rc1/inspecting").exists()

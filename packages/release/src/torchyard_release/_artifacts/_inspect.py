"""Inspecting a candidate: its set of files, and each file's metadata and members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.evidence import ArchiveError
from torchyard_release._artifacts._contents import judge_sdist, judge_wheel
from torchyard_release._artifacts._expected import compare_sets, expected_files
from torchyard_release._artifacts._findings import Fault, Finding
from torchyard_release._artifacts._members import members_of
from torchyard_release._artifacts._metadata import judge_metadata
from torchyard_release._artifacts._promises import judge_promises
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._train import Train
from torchyard_release._records._candidate import Candidate, sha256


def inspect_files(
    files: Mapping[str, Path],
    train: Train,
    packages: Sequence[Package],
    projects: Mapping[str, Mapping[str, Any]],
    candidate: Candidate | None = None,
) -> tuple[Finding, ...]:
    """Judge a set of artifacts; nothing found means that all of it is as declared.

    Args:
        files: the artifacts by their names.
        train: the declaration in the tag that they were built from.
        packages: those that depart.
        projects: the ``[project]`` table of each, in the same tag.
        candidate: what was recorded when they were built; None judges them without.
    """
    findings = compare_sets(train, packages, files)
    expected = expected_files(train, packages)
    for name, path in sorted(files.items()):
        if candidate is not None and candidate.sums.get(name) != sha256(path):
            text = "its bytes are not those that were built"
            remedy = "find out who changed it; `torchyard release build --again`"
            findings.append(Finding(name, Fault.CHANGED, text, remedy))
        if name in expected:
            package = expected[name]
            findings += _judge(name, path, train, package, projects[package.name])
    return tuple(sorted(findings))


def _judge(
    name: str, path: Path, train: Train, package: Package, project: Mapping[str, Any]
) -> list[Finding]:
    findings = []
    size = path.stat().st_size
    if size > package.budget:
        text = f"expected at most {package.budget} bytes, got {size}"
        remedy = "see what grew; if it must be so large, raise `budget` in train.toml"
        findings.append(Finding(name, Fault.BUDGET, text, remedy))
    try:
        members = members_of(path)
    except (OSError, ArchiveError) as error:
        text = f"expected an archive, got: {error}"
        remedy = "build again: `torchyard release build --again`"
        return [*findings, Finding(name, Fault.UNREADABLE, text, remedy)]
    stem = f"{package.stem}-{train.version_of(package)}"
    wheel = name.endswith(".whl")
    described = f"{stem}.dist-info/METADATA" if wheel else f"{stem}/PKG-INFO"
    judge = judge_wheel if wheel else judge_sdist
    findings += judge(name, members, train, package, project)
    if wheel:
        findings += judge_promises(path)
    if described not in members:
        text = f"expected {described}, got none"
        findings.append(Finding(name, Fault.METADATA, text, "build again"))
        return findings
    return findings + judge_metadata(name, members[described], train, package, project)

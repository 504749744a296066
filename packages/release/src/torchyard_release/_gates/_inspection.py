"""The gates ``inspect``, ``api`` and ``sbom`` of a candidate, all from its tag and its files."""

from __future__ import annotations

import shutil
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.metadata import Metadata
from packaging.version import Version

from torchyard_release._artifacts._expected import expected_files
from torchyard_release._artifacts._findings import Finding
from torchyard_release._artifacts._inspect import inspect_files
from torchyard_release._artifacts._members import members_of
from torchyard_release._artifacts._metadata import parse_metadata
from torchyard_release._artifacts._sbom import make_sbom, write_name
from torchyard_release._atomic import write_atomically
from torchyard_release._build._build import DIST, evidence_of
from torchyard_release._copies._bump import departing, previous_tag
from torchyard_release._cut._fragments import read_fragments
from torchyard_release._declaration._package import Package
from torchyard_release._declaration._parse import parse_train
from torchyard_release._declaration._train import FILE, Train
from torchyard_release._gates._api import ApiChange, compare_api
from torchyard_release._records._candidate import Candidate
from torchyard_release._records._evidence import record
from torchyard_release._records._journal import Journal
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._trust import judged


@dataclass(frozen=True, slots=True)
class Inspection:
    """What inspecting a candidate gave.

    Attributes:
        candidate: that was inspected.
        findings: what is wrong with its files; nothing passes.
        compared_with: the tag of the last release; empty before the first.
        api: what changed in each package since then.
        sbom: the file with the bill of materials, relative to the candidate's folder; empty where
            the files are too wrong for one.
    """

    candidate: Candidate
    findings: tuple[Finding, ...]
    compared_with: str
    api: tuple[ApiChange, ...]
    sbom: str

    @property
    def passes(self) -> bool:
        """Whether nothing is wrong with the candidate."""
        return not self.findings and not any(change.faults for change in self.api)


def inspect_candidate(workspace: Workspace, journal: Journal) -> Inspection:
    """Inspect the newest candidate that was built, and record what was found.

    Raises:
        CandidateError: there is none.
        GitError: the tag of the candidate or of the last release is not here.
    """
    found = judged(workspace, workspace.release.latest()[0])
    candidate, folder = found.candidate, found.folder
    scratch = folder / "inspecting"
    shutil.rmtree(scratch, ignore_errors=True)
    began = time.monotonic()
    try:
        now = scratch / "now"
        now.parent.mkdir(parents=True)
        workspace.git.export(candidate.commit, now)
        train = parse_train((now / FILE).read_text(encoding="utf-8"))
        names = departing(workspace.git, train)
        packages = [package for package in train.packages if package.name in names]
        projects = {package.name: _project(now, package) for package in packages}
        dist = folder / DIST
        files = {path.name: path for path in sorted(dist.glob("*"))}
        findings = inspect_files(files, train, packages, projects, candidate)
        _record(folder, journal, candidate, "inspect", [f.line for f in findings], began)
        previous, api = _apis(workspace, train, packages, scratch)
        _record(folder, journal, candidate, "api", [x for a in api for x in a.faults], began)
        sbom = ""
        if not findings:
            text = _sbom(workspace, candidate, train, packages, files)
            path = write_name(train.name, candidate, folder)
            write_atomically(path, text.encode())
            sbom = path.relative_to(folder).as_posix()
        missing = [] if sbom else ["the files do not pass inspection, so that there is no bill"]
        _record(folder, journal, candidate, "sbom", missing, began)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Inspection(candidate, findings, previous, api, sbom)


# Gate -> what is said where it passes, and what is said and to be done where it does not.
_GOOD: Final = {
    "inspect": "every artifact that the train has is there, and each is what was declared",
    "api": "what changed in the public API is announced by fragments and allowed by the version",
    "sbom": "a CycloneDX bill of materials lists every artifact and requirement",
}
_BAD: Final = {
    "inspect": "{} findings about the artifacts. Fix each, then cut another candidate",
    "api": "{} changes of the public API are not announced or not allowed. Do as each line says",
    "sbom": "there is no bill of materials. Fix what inspection found, then inspect again",
}


def _record(
    folder: Path,
    journal: Journal,
    candidate: Candidate,
    gate: str,
    faults: list[str],
    began: float,
) -> None:
    seconds = time.monotonic() - began
    bad = _BAD[gate].format(len(faults))
    found = evidence_of(candidate, gate, tuple(faults), _GOOD[gate], bad, seconds)
    record(folder, journal, found)


def _apis(
    workspace: Workspace, train: Train, packages: list[Package], scratch: Path
) -> tuple[str, tuple[ApiChange, ...]]:
    """Compare every package's API with the last release; return its tag, and what changed."""
    previous = previous_tag(train.version) or train.previous
    before, old = None, None
    if previous:
        before = scratch / "before"
        workspace.git.export(workspace.git.commit(previous), before)
        old = parse_train((before / FILE).read_text(encoding="utf-8"))
    fragments = read_fragments(scratch / "now", train)
    changes = []
    for package in packages:
        known = [other for other in old.packages if other.name == package.name] if old else []
        versions = (
            Version(train.version_of(package)),
            Version(old.version_of(known[0])) if old and known else None,
        )
        changes.append(
            compare_api(package, scratch / "now", before if known else None, versions, fragments)
        )
    return previous, tuple(changes)


def _sbom(
    workspace: Workspace,
    candidate: Candidate,
    train: Train,
    packages: list[Package],
    files: Mapping[str, Path],
) -> str:
    metadata: dict[str, Metadata] = {}
    for name, package in expected_files(train, packages).items():
        if name.endswith(".whl"):
            inside = f"{package.stem}-{train.version_of(package)}.dist-info/METADATA"
            metadata[package.name] = parse_metadata(members_of(files[name])[inside])
    return make_sbom(train.name, candidate, metadata, workspace.git.time(candidate.commit))


def _project(root: Path, package: Package) -> Mapping[str, Any]:
    text = (root / package.folder / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    assert isinstance(project, dict)
    return project

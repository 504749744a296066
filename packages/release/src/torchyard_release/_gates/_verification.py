"""Verification: the cells of each gate, and how each is tried on a candidate's files."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from packaging.version import Version

from torchyard_release._artifacts._wheel import fits_here
from torchyard_release._declaration._train import ANY_CELL, Gate
from torchyard_release._errors import ReleaseError
from torchyard_release._gates._clean_room import CleanRoom
from torchyard_release._index._server import IndexServer
from torchyard_release._records._candidate import Candidate, verify_files
from torchyard_release._records._evidence import Evidence, Outcome
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._trust import DIST, Judged

# The gates that this file knows how to try. Others say in train.toml what is run.
ALONE: Final = "alone"
TOGETHER: Final = "together"
DEPENDENCIES: Final = "dependencies"
TORCH: Final = "torch"
REVERSE: Final = "reverse"
DECISIONS: Final = "decisions"
BENCHMARK: Final = "benchmark"


@dataclass(frozen=True, slots=True)
class Finding:
    """What trying a cell came to.

    Attributes:
        outcome: pass, fail or unverified.
        summary: a sentence; where it did not pass, what to do next too.
        details: lines for whoever looks closer.
        command: what was run.
        files: the candidate's files that it is about; None for all of them.
        outputs: files that it leaves next to the evidence, by name.
    """

    outcome: Outcome
    summary: str
    details: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    files: tuple[str, ...] | None = None
    outputs: Mapping[str, bytes] = field(default_factory=dict)


def unverified(reason: str, remedy: str) -> Finding:
    """Return a finding of something that cannot be tried here."""
    return Finding(Outcome.UNVERIFIED, f"{reason}; {remedy}")


def expected_cells(workspace: Workspace, candidate: Candidate) -> dict[str, tuple[str, ...]]:
    """Return the cells of each gate that follow from the train and from what departs with it."""
    train = workspace.train
    return {
        ALONE: departing(workspace, candidate),
        DEPENDENCIES: ("lowest", "newest"),
        TORCH: tuple(dict.fromkeys(version for version in train.torch if version)),
        REVERSE: tuple(package.name for package in workspace.packages if package.reverse),
        "hardware": tuple(name for name, _ in train.hardware),
    }


def departing(workspace: Workspace, candidate: Candidate) -> tuple[str, ...]:
    """Return the packages that a candidate has files of, each after all that it requires."""
    found = {artifact.package for artifact in candidate.artifacts}
    return tuple(package.name for package in workspace.packages if package.name in found)


def cells_of(workspace: Workspace, candidate: Candidate, gate: Gate) -> tuple[str, ...]:
    """Return the cells of a gate: those that it names, and those that follow from the train."""
    named = [cell for cell in gate.cells if cell != ANY_CELL]
    if ANY_CELL in gate.cells:
        named += expected_cells(workspace, candidate).get(gate.name, ())
    return tuple(dict.fromkeys(named)) or ("",)


@dataclass(slots=True)
class Bench:
    """Where a candidate is tried: its files on a local index, and rooms to install them into.

    Attributes:
        workspace: the repository, with the train.toml of the candidate's commit.
        candidate: what is tried.
        folder: the candidate's folder of the state.
        scratch: a folder for rooms, removed at the end.
        overlay: the address of the local index, which has the candidate's files and no other.
    """

    workspace: Workspace
    candidate: Candidate
    folder: Path
    scratch: Path
    overlay: str
    _bases: dict[str, CleanRoom] = field(default_factory=dict)
    _rooms: int = 0

    @classmethod
    @contextlib.contextmanager
    def open(cls, found: Judged) -> Iterator[Bench]:
        """Serve a candidate's files, whose digests are checked first, while the context lasts."""
        workspace, candidate, folder = found.workspace, found.candidate, found.folder
        dist = folder / DIST
        verify_files(candidate, dist)
        with tempfile.TemporaryDirectory(prefix="train-verify-") as name:
            scratch = Path(name)
            # What does not depart this time is what was released before.
            for earlier in released_folders(workspace):
                shutil.copytree(earlier / DIST, scratch / "index" / "files", dirs_exist_ok=True)
            shutil.copytree(dist, scratch / "index" / "files", dirs_exist_ok=True)
            with IndexServer(scratch / "index") as index:
                yield cls(workspace, candidate, folder, scratch, index.simple)

    def tree(self) -> Path:
        """Return the files of the commit that the candidate was built from, exported once."""
        folder = self.scratch / "tree"
        if not folder.is_dir():
            self.workspace.git.export(self.candidate.commit, folder)
        return folder

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that depart, each after all that it requires."""
        return departing(self.workspace, self.candidate)

    def files_of(self, *packages: str) -> tuple[str, ...]:
        """Return the wheels of packages and of every sibling that they require, which fit here."""
        names = self.workspace.requirements(*packages)
        return tuple(
            artifact.file
            for artifact in self.candidate.artifacts
            if artifact.package in names and artifact.kind == "wheel" and fits_here(artifact.file)
        )

    def pins(self, *packages: str) -> tuple[str, ...]:
        """Return an exact requirement of each package in the candidate's version."""
        versions = {item.package: item.version for item in self.candidate.artifacts}
        return tuple(
            f"{name}=={versions.get(name) or self.workspace.version_of(name)}" for name in packages
        )

    def room(self, packages: Sequence[str], torch: str = "") -> CleanRoom:
        """Make a room; over one with torch where one of the packages requires it.

        Args:
            packages: what will be installed.
            torch: the torch to install them over; the oldest of the train where it is empty.
        """
        wanted = torch or self.workspace.train.torch[0]
        needs = [self.workspace.train.package(name) for name in packages]
        base = self._base(wanted) if wanted and any(package.torch for package in needs) else None
        self._rooms += 1
        return CleanRoom(self.scratch / f"room{self._rooms}", base).make()

    def _base(self, torch: str) -> CleanRoom:
        if torch not in self._bases:
            room = CleanRoom(self.scratch / f"torch-{torch}").make()
            room.install(f"torch=={torch}")
            self._bases[torch] = room
        return self._bases[torch]


def try_cell(
    gate: Gate, cell: str, bench: Bench, attempt: Callable[[Gate, str, Bench], Finding]
) -> Evidence:
    """Try one cell, and bind what came to the bytes that it was tried on."""
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    began = time.monotonic()
    try:
        finding = attempt(gate, cell, bench)
    except ReleaseError as error:
        finding = Finding(
            Outcome.FAIL, f"{error.text.splitlines()[0]}; {error.remedy}", (error.text,)
        )
    sums = bench.candidate.sums
    files = sums if finding.files is None else {name: sums[name] for name in finding.files}
    evidence = Evidence(
        gate=gate.name,
        cell=cell,
        outcome=finding.outcome,
        summary=finding.summary,
        artifacts=files,
        whole=finding.files is None,
        candidate=bench.candidate.candidate,
        commit=bench.candidate.commit,
        when=when,
        seconds=round(time.monotonic() - began, 2),
        command=finding.command,
        details=finding.details,
    )
    for name, content in finding.outputs.items():
        target = bench.folder / "kept" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return evidence


def released_folders(workspace: Workspace) -> tuple[Path, ...]:
    """Return the folder of every candidate kept here that became a release, oldest first."""
    found = []
    for version in sorted(workspace.state.releases(), key=Version):
        release = workspace.state.release(version)
        labels = [entry.data["candidate"] for entry in release.entries() if entry.kind == "promote"]
        found += [release.folder / str(label) for label in labels[-1:]]
    return tuple(found)

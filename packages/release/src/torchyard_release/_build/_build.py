"""Building a candidate: every artifact, twice, from the tag and never from the checkout.

Where nothing in a package changed since the last candidate, that candidate's files are one of the
two, so that it is built once more and compared with them.
"""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from torchyard_release._copies._bump import departing
from torchyard_release._records._candidate import (
    Artifact,
    Candidate,
    read_candidate,
    sha256,
    verify_files,
)
from torchyard_release._copies._check import derive
from torchyard_release._cut._cut import candidate_numbers
from torchyard_release._errors import CandidateError, GitError
from torchyard_release._records._evidence import Evidence, Outcome, record
from torchyard_release._repository._git import Git
from torchyard_release._records._journal import Journal
from torchyard_release._artifacts._members import explain
from torchyard_release._declaration._package import Package
from torchyard_release._build._round import CONSTRAINTS, ROUNDS, Conditions, age_files, build_package
from torchyard_release._declaration._train import Train
from torchyard_release._repository._workspace import Workspace

DIST: Final = "dist"
SCRATCH: Final = "building"


@dataclass(frozen=True, slots=True)
class Built:
    """What building gave.

    Attributes:
        number: of the candidate.
        candidate: its record.
        differences: per file that the two rounds made differently, what differs.
        drifts: what in the tag differs from its own train.toml.
        seconds: per package, how long it took.
        unchanged: packages whose files are the last candidate's, built once more.
        last: the label of the last candidate; empty without one to keep files of.
    """

    number: int
    candidate: Candidate
    differences: dict[str, tuple[str, ...]]
    drifts: tuple[str, ...]
    seconds: dict[str, float]
    unchanged: tuple[str, ...]
    last: str


@dataclass(frozen=True, slots=True)
class _Last:
    """A candidate that was built before, whose files are what they were."""

    candidate: Candidate
    dist: Path

    def files_of(self, package: Package, git: Git, commit: str) -> tuple[Path, ...]:
        """Return a package's files; none where it may come out otherwise in a later commit."""
        paths = (str(package.folder), CONSTRAINTS)
        if not git.succeeds("diff", "--quiet", self.candidate.commit, commit, "--", *paths):
            return ()
        artifacts = self.candidate.artifacts
        return tuple(self.dist / item.file for item in artifacts if item.package == package.name)


def build_candidate(
    workspace: Workspace,
    journal: Journal,
    commands: click.Group,
    *,
    again: bool,
    isolated: bool,
    progress: Callable[[str], None],
) -> Built:
    """Build the newest candidate that is tagged, and record the gates ``build`` and ``check``.

    Args:
        workspace: the repository.
        journal: of the release.
        commands: the group ``torchyard release``.
        again: whether a candidate that was built is built again, all of it twice; the evidence
            about other bytes then goes stale.
        isolated: whether each build gets an environment of its own.
        progress: receives the name of each step.

    Raises:
        GitError: no candidate is tagged.
        CandidateError: it was built before.
        BuildError: a package could not be built.
    """
    git = workspace.git
    numbers = candidate_numbers(git, workspace.train)
    if not numbers:
        raise GitError(
            f"{workspace.train.candidate_tag(1)}: no such tag: there is no candidate to build",
            "cut the train: `torchyard release cut`",
        )
    number = numbers[-1]
    folder = workspace.release.candidate(number)
    if (folder / "candidate.json").is_file() and not again:
        candidate = read_candidate(folder)
        verify_files(candidate, folder / DIST)
        done = [entry.data for entry in journal.entries() if entry.kind == "build.done"]
        if not any(data["digest"] == candidate.digest for data in done):
            # Killed between the record and the line about it.
            journal.append("build.done", candidate=f"rc{number}", digest=candidate.digest)
        raise CandidateError(
            f"rc{number} was built before, and its {len(candidate.artifacts)} files are what they "
            f"were",
            "go on: `torchyard release inspect`; `torchyard release build --again` rebuilds it",
        )
    tag = workspace.train.candidate_tag(number)
    commit, epoch = git.commit(tag), git.time(tag)
    scratch = folder / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    # Until there is a record again, there is no candidate.
    (folder / "candidate.json").unlink(missing_ok=True)
    shutil.rmtree(folder / DIST, ignore_errors=True)
    journal.append("build.begin", candidate=f"rc{number}", tag=tag, commit=commit)
    began = time.monotonic()
    sources = _exports(workspace, commit, epoch, scratch)
    first = Workspace.read(sources[ROUNDS[0].name])
    train = first.train
    last = None if again else _last(workspace, number, progress)
    leaving = set(departing(git, train))
    packages = [package for package in first.packages if package.name in leaving]
    artifacts: list[Artifact] = []
    differences: dict[str, tuple[str, ...]] = {}
    seconds = {}
    kept: list[str] = []
    for package in packages:
        before = last.files_of(package, git, commit) if last else ()
        how = f"once more: nothing in it changed since {last.candidate.candidate}" if last else ""
        progress(f"building {package.name}, {how if before else 'twice'}")
        start = time.monotonic()
        # Its own, so that what a pick left alone comes out byte for byte as in the last candidate,
        # and what was proven about it stays proven.
        changed = git.changed(commit, str(package.folder))
        outs = _twice(sources, package, folder, changed, before, isolated=isolated)
        differences |= _compare(*outs)
        made = [_artifact(path, package, train) for path in outs[0]]
        artifacts += made
        sums = {item.file: item.sha256 for item in made}
        if before and last and sums.items() <= last.candidate.sums.items():
            kept.append(package.name)
        seconds[package.name] = round(time.monotonic() - start, 3)
        journal.append("build.package", package=package.name, sums=sums)
    progress("comparing the tag with its train.toml")
    drifts = _drifts(first, commands)
    dist = scratch / DIST
    dist.mkdir()
    for path in sorted((scratch / ROUNDS[0].name / "out").glob("*/*")):
        shutil.copyfile(path, dist / path.name)
    candidate = Candidate(train.release, f"rc{number}", commit, tag, tuple(sorted(artifacts)))
    verify_files(candidate, dist)
    dist.rename(folder / DIST)
    label = last.candidate.candidate if last else ""
    built = Built(number, candidate, differences, drifts, seconds, tuple(kept), label)
    _record(folder, journal, built, time.monotonic() - began)
    # The record comes last: without it there is no candidate, and building starts over.
    candidate.write(folder)
    shutil.rmtree(scratch)
    journal.append("build.done", candidate=candidate.candidate, digest=candidate.digest)
    return built


def _last(workspace: Workspace, number: int, progress: Callable[[str], None]) -> _Last | None:
    """Return the newest candidate that was built before this one."""
    earlier = [other for other in workspace.release.candidates() if other < number]
    if not earlier:
        return None
    folder = workspace.release.candidate(earlier[-1])
    candidate = read_candidate(folder)
    try:
        verify_files(candidate, folder / DIST)
    except (CandidateError, OSError):
        # Somebody made room; nothing of what is built now depends on it.
        progress(f"{candidate.candidate} has not got its files any more: all is built twice")
        return None
    return _Last(candidate, folder / DIST)


def _exports(workspace: Workspace, commit: str, epoch: int, scratch: Path) -> dict[str, Path]:
    """Write the commit out once for each round; return the folders by the rounds' names."""
    sources = {}
    for conditions in ROUNDS:
        source = scratch / conditions.name / conditions.depth / "source"
        source.parent.mkdir(parents=True)
        workspace.git.export(commit, source)
        age_files(source, conditions, epoch)
        sources[conditions.name] = source
    return sources


def _twice(
    sources: Mapping[str, Path],
    package: Package,
    folder: Path,
    epoch: int,
    before: tuple[Path, ...],
    *,
    isolated: bool,
) -> tuple[tuple[Path, ...], ...]:
    """Build a package in every round, side by side; return the files of each.

    Where its files of the last candidate are given, they are the first round, unless the second
    shows that something else than the package's own folder has changed them.
    """

    def folder_of(conditions: Conditions) -> Path:
        return folder / SCRATCH / conditions.name / "out" / package.name

    def once(conditions: Conditions) -> tuple[Path, ...]:
        out = folder_of(conditions)
        log = folder / "log" / f"{package.name}-{conditions.name}.txt"
        source = sources[conditions.name]
        return build_package(source, package, out, log, conditions, epoch, isolated=isolated)

    if before:
        first, second = ROUNDS
        out = folder_of(first)
        out.mkdir(parents=True)
        files = tuple(Path(shutil.copyfile(path, out / path.name)) for path in before)
        more = once(second)
        if not _compare(files, more):
            return files, more
        shutil.rmtree(out)
        return once(first), more
    with ThreadPoolExecutor(len(ROUNDS)) as pool:
        return tuple(pool.map(once, ROUNDS))


def evidence_of(
    candidate: Candidate, gate: str, faults: tuple[str, ...], good: str, bad: str, seconds: float
) -> Evidence:
    """Return what one of the tool's own gates found about a whole candidate.

    Args:
        candidate: that was tried.
        gate: the name of the gate.
        faults: what was found; nothing passes.
        good: the summary where it passes.
        bad: the summary where it does not, ending in what to do next.
        seconds: how long it took.
    """
    return Evidence(
        gate=gate,
        cell="",
        outcome=Outcome.FAIL if faults else Outcome.PASS,
        summary=bad if faults else good,
        artifacts=candidate.sums,
        whole=True,
        candidate=candidate.candidate,
        commit=candidate.commit,
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        command=("torchyard", "release", "build" if gate in {"build", "check"} else "inspect"),
        details=faults,
    )


def _compare(first: tuple[Path, ...], second: tuple[Path, ...]) -> dict[str, tuple[str, ...]]:
    left = {path.name: path for path in first}
    right = {path.name: path for path in second}
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(left.keys() | right.keys()):
        if name not in left or name not in right:
            found[name] = ("only one of the two rounds made it",)
        elif lines := explain(left[name], right[name]):
            found[name] = lines
    return found


def _artifact(path: Path, package: Package, train: Train) -> Artifact:
    wheel = path.suffix == ".whl"
    version = str(
        parse_wheel_filename(path.name)[1] if wheel else parse_sdist_filename(path.name)[1]
    )
    kind = "wheel" if wheel else "sdist"
    size = path.stat().st_size
    return Artifact(path.name, package.name, version, kind, sha256(path), size)


def _drifts(exported: Workspace, commands: click.Group) -> tuple[str, ...]:
    files = sorted(
        path.relative_to(exported.root).as_posix()
        for path in exported.root.rglob("*")
        if path.is_file()
    )
    derived = derive(exported.root, exported.train, files, commands)
    return tuple(drift.text for drift in derived.drifts)


def _record(folder: Path, journal: Journal, built: Built, seconds: float) -> None:
    faults = tuple(f"{name}: {line}" for name, lines in built.differences.items() for line in lines)
    count = len(built.candidate.artifacts)
    kept = sum(item.package in built.unchanged for item in built.candidate.artifacts)
    since = f"; {kept} of them once for {built.last} and once more, which changed nothing in them"
    record(
        folder,
        journal,
        evidence_of(
            built.candidate,
            "build",
            faults,
            f"all {count} artifacts were built twice, in other places, modes and times, and are "
            f"the same to the byte{since if kept else ''}",
            f"{len(built.differences)} of {count} artifacts came out differently when they were "
            f"built again. See which members differ, and make their build deterministic",
            seconds,
        ),
    )
    record(
        folder,
        journal,
        evidence_of(
            built.candidate,
            "check",
            built.drifts,
            "everything in the tag says what its train.toml does",
            f"{len(built.drifts)} copies in the tag differ from its train.toml. Derive them on "
            f"the branch: `torchyard release check --write`, then cut another candidate",
            0.0,
        ),
    )

"""The foreign monorepo with a candidate that took no time to build, and people who may sign it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from packages.release.tests import foreign
from packages.release.tests.wheels import write_wheel
from torchyard_release._records._candidate import Artifact, Candidate
from torchyard_release._records._evidence import Evidence, Outcome, record
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._keys import make_key

__all__ = [
    "VERSION",
    "add_candidate",
    "pass_gates",
    "people",
    "record_evidence",
    "train_toml",
    "tree_digest",
]

VERSION: Final = "1.4.0"
_REQUIRES: Final[Mapping[str, Sequence[str]]] = {
    "orchard": (),
    "orchard-press": ("orchard~=1.4.0",),
    "orchard-shop": ("orchard~=1.4.0", "orchard-press~=1.4.0"),
}


def train_toml(root: Path, *, more: str = "", **changes: str) -> None:
    """Change train.toml: texts by what replaces them, then what is added, and commit it."""
    path = root / "train.toml"
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text + more, encoding="utf-8")
    foreign.git(root, "commit", "--quiet", "--all", "--message=Change the train")


def people(root: Path, folder: Path, *names: str, threshold: int) -> list[Path]:
    """Make a key for each and write the public ones into train.toml; return the private ones."""
    lines = [f"\n[signing]\nthreshold = {threshold}\n[signing.keys]\n"]
    lines += [f'{name} = "{make_key(folder / f"{name}.pem")}"\n' for name in names]
    train_toml(root, more="".join(lines))
    return [folder / f"{name}.pem" for name in names]


def add_candidate(
    root: Path, number: int = 1, *, texts: Mapping[str, str] | None = None
) -> Candidate:
    """Put a candidate of three wheels into the state folder, and tag what is checked out."""
    workspace = Workspace.find(root)
    tag = workspace.train.candidate_tag(number)
    foreign.git(root, "tag", "--annotate", f"--message={tag}", tag)
    folder = workspace.release.candidate(number)
    artifacts = []
    for name, requires in _REQUIRES.items():
        text = (texts or {}).get(name, f"NAME = {name!r}\n")
        file, digest = write_wheel(folder / "dist", name, VERSION, requires=requires, text=text)
        size = (folder / "dist" / file).stat().st_size
        artifacts.append(Artifact(file, name, VERSION, "wheel", digest, size))
    commit = workspace.git.commit()
    candidate = Candidate(VERSION, f"rc{number}", commit, tag, tuple(sorted(artifacts)))
    candidate.write(folder)
    return candidate


def pass_gates(root: Path, candidate: Candidate, *gates: str) -> None:
    """Record evidence that gates pass, about every file of a candidate."""
    for gate in gates:
        record_evidence(
            root,
            Evidence(
                gate=gate,
                cell="",
                outcome=Outcome.PASS,
                summary="fine",
                artifacts=candidate.sums,
                whole=True,
                candidate=candidate.candidate,
                commit=candidate.commit,
                when="2027-01-20T10:00:00+00:00",
                seconds=1.0,
            ),
        )


def record_evidence(root: Path, evidence: Evidence) -> Path:
    """Record evidence about a candidate as a command of the train does; return its file."""
    workspace = Workspace.find(root)
    folder = workspace.release.folder / evidence.candidate
    with workspace.operation(["verify"]) as journal:
        return record(folder, journal, evidence)


def tree_digest(folder: Path) -> dict[str, str]:
    """Return the digest of every file below a folder, by its path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }

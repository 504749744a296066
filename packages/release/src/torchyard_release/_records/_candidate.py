"""A candidate: the exact files that a release would consist of, and what they were made from."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from torchyard.evidence import raised_as
from torchyard.evidence.documents import parse_json, structure
from torchyard_release._atomic import write_json_atomically
from torchyard_release._errors import CandidateError

_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class Artifact:
    """One file of a candidate.

    Attributes:
        file: its name.
        package: the distribution that it is of.
        version: of the distribution.
        kind: ``wheel`` or ``sdist``.
        sha256: of its bytes, in hexadecimal.
        size: in bytes.
    """

    file: str
    package: str
    version: str
    kind: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was built, once, to be released or not.

    Attributes:
        version: of the release, X.Y.Z.
        candidate: its label, such as ``rc1``.
        commit: that it was built from.
        tag: of that commit.
        artifacts: sorted by name.
    """

    version: str
    candidate: str
    commit: str
    tag: str
    artifacts: tuple[Artifact, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the names and digests of all files: what evidence is bound to."""
        lines = [f"{artifact.sha256}  {artifact.file}\n" for artifact in self.artifacts]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def sums(self) -> dict[str, str]:
        """The digest of each file, by its name."""
        return {artifact.file: artifact.sha256 for artifact in self.artifacts}

    def write(self, folder: Path) -> None:
        """Write the record into a candidate's folder."""
        data = asdict(self) | {"schema": _SCHEMA, "digest": self.digest}
        write_json_atomically(folder / "candidate.json", data)


@dataclass(frozen=True, slots=True)
class _Record:
    """A candidate as its file has it."""

    schema: int
    version: str
    candidate: str
    commit: str
    tag: str
    artifacts: tuple[Artifact, ...]
    digest: str


def read_candidate(folder: Path) -> Candidate:
    """Read a candidate's record; CandidateError if there is none, or it was changed."""
    path = folder / "candidate.json"
    try:
        data = path.read_bytes()
    except OSError:
        raise CandidateError(
            f"{path}: no such file: this candidate has not been built",
            "build it: `torchyard release build`",
        ) from None
    with raised_as(lambda text: CandidateError(text, _AGAIN)):
        record = structure(parse_json(data, str(path)), _Record, str(path))
    if record.schema != _SCHEMA:
        raise CandidateError(f"{path}: of another schema", _AGAIN)
    candidate = Candidate(
        record.version, record.candidate, record.commit, record.tag, record.artifacts
    )
    artifacts = candidate.artifacts
    if record.digest != candidate.digest or list(artifacts) != sorted(artifacts) or not artifacts:
        raise CandidateError(f"{path}: its digest is not that of the files it lists", _AGAIN)
    return candidate


def verify_files(candidate: Candidate, folder: Path) -> None:
    """Refuse a folder of artifacts that holds anything but the candidate's bytes."""
    if found := damage_of(candidate, folder):
        more = f" ({len(found)} in all)" if len(found) > 1 else ""
        raise CandidateError(f"{folder}: {found[0]}{more}", _AGAIN)


def damage_of(candidate: Candidate, folder: Path) -> tuple[str, ...]:
    """Return what in a folder of artifacts is not the candidate's bytes, a line each.

    A link is none of them, whatever it leads to: its target may change without this folder.
    """
    try:
        found = {path.name: path for path in folder.iterdir()}
    except OSError as error:
        return (f"{folder.name} cannot be read: {error.strerror}",)
    lines = []
    for name in sorted(candidate.sums.keys() | found.keys()):
        if name not in found:
            lines.append(f"{name} is missing")
        elif name not in candidate.sums:
            lines.append(f"{name} was not built with it")
        elif found[name].is_symlink():
            lines.append(f"{name} was replaced by a link to {found[name].readlink()}")
        elif not found[name].is_file():
            lines.append(f"{name} is no file any more")
        elif (digest := sha256(found[name])) != candidate.sums[name]:
            lines.append(f"{name} has SHA-256 {digest}, was built with {candidate.sums[name]}")
    return tuple(lines)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_AGAIN: Final = "build this candidate again: `torchyard release build --again`"

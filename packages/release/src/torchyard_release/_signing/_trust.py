"""What a candidate is judged by: the train.toml of its commit, its files, its signatures.

The work tree decides nothing. What it says otherwise is named, so that nobody approves by a key,
a gate or a waiver that no commit holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchyard.evidence.keys import PublicKey
from torchyard_release._declaration._train import FILE, Index, Train
from torchyard_release._errors import CandidateError, GitError, ReleaseError
from torchyard_release._records._candidate import Candidate, damage_of, read_candidate
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._keys import parse_public_key
from torchyard_release._signing._manifest import Manifest, read_manifest

MANIFEST: Final = "manifest.json"
DIST: Final = "dist"


class PromotionError(ReleaseError):
    """A candidate may not become the release yet."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate, and the declaration by which it is judged.

    Attributes:
        workspace: the repository, with the train.toml of the candidate's commit.
        candidate: its record.
        folder: of the candidate in the state.
        differing: what the train.toml of the work tree says otherwise about keys, gates and
            waivers, a line each.
    """

    workspace: Workspace
    candidate: Candidate
    folder: Path
    differing: tuple[str, ...]

    @property
    def train(self) -> Train:
        """The declaration in the candidate's commit."""
        return self.workspace.train

    def keys(self) -> list[PublicKey]:
        """Return whose signatures count; PromotionError where the commit lists too few."""
        signing = self.train.signing
        keys = [parse_public_key(text, owner=owner) for owner, text in signing.keys]
        if (different := len(set(keys))) < signing.threshold:
            raise PromotionError(
                f"[signing] in the {FILE} of {self.candidate.tag} asks for {signing.threshold} "
                f"signatures and lists {different} different keys",
                "`torchyard release key make FILE.pem` makes one; commit the public keys on the "
                "branch, then `torchyard release cut --candidate`",
            )
        return keys

    def manifest(self, *, threshold: int | None = None) -> tuple[Manifest, int]:
        """Return the signed manifest, and how many of the trusted keys signed it.

        Args:
            threshold: how many must have; as many as train.toml asks for where it is None.

        Raises:
            ReleaseError: it was changed, too few signed it, or it names other files.
        """
        train, candidate = self.train, self.candidate
        manifest, signed = read_manifest(
            self.folder / MANIFEST,
            self.keys(),
            threshold=threshold or train.signing.threshold,
            project=train.name,
            version=candidate.version,
        )
        same = (manifest.candidate, manifest.commit) == (candidate.candidate, candidate.commit)
        if not same or dict(manifest.files) != candidate.sums:
            raise PromotionError(
                f"{self.folder / MANIFEST}: expected the manifest of {candidate.candidate}, got "
                f"that of {manifest.candidate}: what is signed is not what is here",
                f"remove it and approve {candidate.candidate}: `torchyard release approve`",
            )
        return manifest, len(signed)

    def damage(self) -> tuple[str, ...]:
        """Return what of the candidate's files and signatures is not as it was made, a line each.

        Nothing is ready while there is such a line.
        """
        found = damage_of(self.candidate, self.folder / DIST)
        if (self.folder / MANIFEST).exists():
            try:
                self.manifest(threshold=1)
            except ReleaseError as error:
                found = (*found, error.text)
        return found

    def require_committed(self) -> None:
        """Refuse a work tree that says otherwise about keys, gates or waivers."""
        if self.differing:
            more = f" and {len(self.differing) - 1} more" if len(self.differing) > 1 else ""
            raise PromotionError(
                f"{FILE}: the work tree differs from {self.candidate.tag}, which decides: "
                f"{self.differing[0]}{more}",
                f"check the candidate out: `git switch --detach {self.candidate.tag}`; what is to "
                f"count is committed on {self.train.branch} and cut into a candidate: "
                f"`torchyard release cut --candidate`",
            )


def judged(workspace: Workspace, number: int) -> Judged:
    """Return a candidate with the declaration of the commit that its tag names.

    Raises:
        CandidateError: it was not built, or its record names another commit than its tag.
        GitError: its tag is not here.
    """
    folder = workspace.release.candidate(number)
    candidate = read_candidate(folder)
    tag = workspace.train.candidate_tag(number)
    commit = workspace.git.commit(tag)
    said = (candidate.version, candidate.candidate, candidate.tag, candidate.commit)
    if said != (workspace.train.release, f"rc{number}", tag, commit):
        raise CandidateError(
            f"{folder / 'candidate.json'}: expected the record of {tag} at {commit[:12]}, it is "
            f"that of {candidate.tag} {candidate.version} at {candidate.commit[:12]}",
            f"find out what was moved: `git show {tag}`; then build this candidate again: "
            "`torchyard release build --again`",
        )
    declared = workspace.declared(commit)
    return Judged(declared, candidate, folder, _differing(workspace.train, declared.train))


def committed_index(workspace: Workspace, name: str) -> Index:
    """Return an index of the train.toml that is checked out, as its commit has it.

    Raises:
        ReleaseError: there is no such index, or the work tree gives it another address.
    """
    known = {index.name: index for index in workspace.declared("HEAD").train.indexes}
    here = {index.name: index for index in workspace.train.indexes}
    if name not in known and name not in here:
        raise ReleaseError(
            f"--index: expected one of {', '.join(known) or '(none)'}, got {name!r}",
            f"name one of [indexes] of {FILE}" if known else f"add [indexes.{name}] to {FILE}",
        )
    if known.get(name) != here.get(name):
        raise GitError(
            f"{FILE}: [indexes.{name}] of the work tree differs from that of the commit "
            f"{workspace.git.commit()[:12]}",
            f"commit {FILE}, or put it back: `git checkout -- {FILE}`",
        )
    return known[name]


def _differing(here: Train, declared: Train) -> tuple[str, ...]:
    return (
        *_rows("signing", _signing(here), _signing(declared)),
        *_rows(
            "gates",
            {gate.name: gate for gate in here.gates},
            {gate.name: gate for gate in declared.gates},
        ),
        *_rows(
            "waivers",
            {f"{item.gate} {item.cell}".rstrip(): item for item in here.waivers},
            {f"{item.gate} {item.cell}".rstrip(): item for item in declared.waivers},
        ),
    )


def _signing(train: Train) -> dict[str, object]:
    return {"threshold": train.signing.threshold, **{f"keys.{k}": v for k, v in train.signing.keys}}


def _rows(table: str, here: Mapping[str, object], declared: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(here.keys() | declared.keys()):
        if name not in declared:
            yield f"[{table}] {name}: the work tree alone has it"
        elif name not in here:
            yield f"[{table}] {name}: the work tree has it not"
        elif here[name] != declared[name]:
            yield f"[{table}] {name}: the work tree has another"

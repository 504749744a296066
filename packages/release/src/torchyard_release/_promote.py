"""Approval and promotion: a candidate's bytes become the release, without being built again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from securesystemslib.signer import Key

from torchyard_release._candidate import Candidate, read_candidate, sha256, verify_files
from torchyard_release._errors import ReleaseError
from torchyard_release._evidence import FOLDER
from torchyard_release._journal import Journal
from torchyard_release._judgement import scorecard_of
from torchyard_release._keys import Signatory, parse_public_key
from torchyard_release._manifest import Manifest, check_files, read_manifest, sign_manifest
from torchyard_release._workspace import Workspace

MANIFEST: Final = "manifest.json"


class PromotionError(ReleaseError):
    """A candidate may not become the release yet."""


def approve(workspace: Workspace, number: int, signer: Signatory, journal: Journal) -> int:
    """Sign a candidate's manifest, and return how many signatures it has then.

    Raises:
        PromotionError: the scorecard is not green, or nobody knows the key.
    """
    candidate, folder = _checked(workspace, number)
    owner = next((n for n, key in workspace.train.signing.keys if key == signer.public), None)
    if owner is None:
        raise PromotionError(
            f"the key {signer.public} is none of [signing.keys] of train.toml",
            f'use one of those, or commit yours there: NAME = "{signer.public}"',
        )
    _require_green(workspace, number)
    count = sign_manifest(folder / MANIFEST, manifest_of(workspace, candidate, folder), signer)
    journal.append(
        "approve",
        candidate=candidate.candidate,
        by=owner,
        manifest=sha256(folder / MANIFEST),
        signatures=count,
    )
    return count


def manifest_of(workspace: Workspace, candidate: Candidate, folder: Path) -> Manifest:
    """Return what is to be signed: the files, and the evidence that was there."""
    evidence = {path.name: sha256(path) for path in sorted((folder / FOLDER).glob("*.json"))}
    return Manifest(
        project=workspace.train.name,
        version=candidate.version,
        candidate=candidate.candidate,
        commit=candidate.commit,
        files=candidate.sums,
        evidence=evidence,
    )


def signed_manifest(workspace: Workspace, number: int) -> Manifest:
    """Return a candidate's manifest, which enough people signed and its files agree with."""
    candidate, folder = _checked(workspace, number)
    manifest, _ = read_manifest(
        folder / MANIFEST,
        trusted_keys(workspace),
        threshold=workspace.train.signing.threshold,
        project=workspace.train.name,
        version=candidate.version,
    )
    if manifest.candidate != candidate.candidate or dict(manifest.files) != candidate.sums:
        raise PromotionError(
            f"{folder / MANIFEST}: expected the manifest of {candidate.candidate}, got that of "
            f"{manifest.candidate}: what is signed is not what is here",
            f"remove it and approve {candidate.candidate}: `torchyard release approve`",
        )
    if wrong := check_files(manifest, folder / "dist"):
        raise PromotionError(
            f"{folder / 'dist'}: {wrong[0]} ({len(wrong)} in all)",
            "restore the folder from where it was signed; a candidate is never built again",
        )
    return manifest


def promote(workspace: Workspace, number: int, journal: Journal) -> str:
    """Make a candidate the release: tag its commit, and write it down. Again is no harm.

    Returns:
        the tag.

    Raises:
        PromotionError: the scorecard is not green, too few signed, or another was promoted.
    """
    train, git = workspace.train, workspace.git
    candidate, _ = _checked(workspace, number)
    before = promoted(workspace)
    if before not in {"", candidate.candidate}:
        raise PromotionError(
            f"{train.release}: {before} is the release already, got {candidate.candidate}",
            "a release is made once: set the version to the next patch and cut that",
        )
    _require_green(workspace, number)
    signed_manifest(workspace, number)
    if git.has_tag(train.tag) and git.commit(train.tag) != candidate.commit:
        raise PromotionError(
            f"tag {train.tag}: expected none, or one at {candidate.commit[:12]}, it is at "
            f"{git.commit(train.tag)[:12]}",
            f"find out who made it; remove it (`git tag -d {train.tag}`) if it was never pushed, "
            "otherwise release the next patch",
        )
    if not git.has_tag(train.tag):
        message = (
            f"{train.name} {train.release}\n\n{candidate.candidate}, digest {candidate.digest}"
        )
        git.run("tag", "--annotate", "--message", message, train.tag, candidate.commit)
    if not before:
        journal.append(
            "promote", candidate=candidate.candidate, commit=candidate.commit, tag=train.tag
        )
    return train.tag


def promoted(workspace: Workspace) -> str:
    """Return the candidate that was promoted, such as ``rc2``; empty where none was."""
    found = [entry for entry in workspace.release.entries() if entry.kind == "promote"]
    return str(found[-1].data["candidate"]) if found else ""


def trusted_keys(workspace: Workspace) -> list[Key]:
    """Return whose signatures count; PromotionError where train.toml lists too few."""
    signing = workspace.train.signing
    keys = [parse_public_key(text, owner=owner) for owner, text in signing.keys]
    if len({key.keyid for key in keys}) < signing.threshold:
        raise PromotionError(
            f"[signing] of train.toml asks for {signing.threshold} signatures and lists "
            f"{len({key.keyid for key in keys})} different keys",
            "`torchyard release key make FILE.pem` makes one; commit the public keys there",
        )
    return keys


def _checked(workspace: Workspace, number: int) -> tuple[Candidate, Path]:
    folder = workspace.release.candidate(number)
    candidate = read_candidate(folder)
    verify_files(candidate, folder / "dist")
    return candidate, folder


def _require_green(workspace: Workspace, number: int) -> None:
    card = scorecard_of(workspace, number)
    if not card.ready:
        rows = [f"{row.gate} {row.cell}".rstrip() for row in card.rows if row.stops]
        raise PromotionError(
            f"{card.candidate}: {len(rows)} blocking rows are not green: "
            f"{', '.join(rows[:6]) or 'there is none at all'}{' ...' if len(rows) > 6 else ''}",
            "`torchyard release scorecard` says what to do about each",
        )

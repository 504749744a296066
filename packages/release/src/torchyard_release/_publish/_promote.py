"""Approval and promotion: a candidate's bytes become the release, without being built again."""

from __future__ import annotations

from torchyard.evidence.keys import PrivateKey
from torchyard_release._gates._judgement import scorecard_of
from torchyard_release._records._candidate import sha256, verify_files
from torchyard_release._records._evidence import FOLDER
from torchyard_release._records._journal import Journal
from torchyard_release._repository._workspace import Workspace
from torchyard_release._signing._manifest import Manifest, check_files, sign_manifest
from torchyard_release._signing._trust import DIST, MANIFEST, Judged, PromotionError, judged


def approve(workspace: Workspace, number: int, key: PrivateKey, journal: Journal) -> int:
    """Sign a candidate's manifest, and return how many signatures it has then.

    Raises:
        PromotionError: the scorecard is not green, the key is none of those that the candidate's
            commit lists, or the work tree says otherwise about keys, gates or waivers.
    """
    found = _checked(workspace, number)
    candidate, folder = found.candidate, found.folder
    public = key.public.hex
    owner = next((n for n, known in found.train.signing.keys if known == public), None)
    if owner is None:
        raise PromotionError(
            f"the key {public} is none of [signing.keys] in the train.toml of "
            f"{candidate.tag}, from which keys are taken",
            f'use one of those, or commit yours on {found.train.branch}: NAME = "{public}"; '
            "then `torchyard release cut --candidate`",
        )
    found.require_committed()
    _require_green(workspace, number)
    count = sign_manifest(folder / MANIFEST, manifest_of(found), key)
    journal.append(
        "approve",
        candidate=candidate.candidate,
        by=owner,
        manifest=sha256(folder / MANIFEST),
        signatures=count,
    )
    return count


def manifest_of(found: Judged) -> Manifest:
    """Return what is to be signed: the files, and the evidence that was there."""
    candidate = found.candidate
    paths = sorted((found.folder / FOLDER).glob("*.json"))
    evidence = {path.name: sha256(path) for path in paths}
    return Manifest(
        project=found.train.name,
        version=candidate.version,
        candidate=candidate.candidate,
        commit=candidate.commit,
        files=candidate.sums,
        evidence=evidence,
    )


def signed_manifest(workspace: Workspace, number: int) -> Manifest:
    """Return a candidate's manifest, which enough people signed and its files agree with."""
    found = _checked(workspace, number)
    manifest, _ = found.manifest()
    if wrong := check_files(manifest, found.folder / DIST):
        raise PromotionError(
            f"{found.folder / DIST}: {wrong[0]} ({len(wrong)} in all)",
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
    found = _checked(workspace, number)
    train, git, candidate = found.train, workspace.git, found.candidate
    before = promoted(workspace)
    if before not in {"", candidate.candidate}:
        raise PromotionError(
            f"{train.release}: {before} is the release already, got {candidate.candidate}",
            "a release is made once: set the version to the next patch and cut that",
        )
    found.require_committed()
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


def _checked(workspace: Workspace, number: int) -> Judged:
    found = judged(workspace, number)
    verify_files(found.candidate, found.folder / DIST)
    return found


def _require_green(workspace: Workspace, number: int) -> None:
    card = scorecard_of(workspace, number)
    if card.damage:
        raise PromotionError(
            f"{card.candidate}: {card.damage[0]}",
            "see `torchyard release status`; find out who changed it before anybody signs",
        )
    if not card.ready:
        rows = [f"{row.gate} {row.cell}".rstrip() for row in card.rows if row.stops]
        raise PromotionError(
            f"{card.candidate}: {len(rows)} blocking rows are not green: "
            f"{', '.join(rows[:6]) or 'there is none at all'}{' ...' if len(rows) > 6 else ''}",
            "`torchyard release scorecard` says what to do about each",
        )
